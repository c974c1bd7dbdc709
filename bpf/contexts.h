/* SPDX-License-Identifier: GPL-2.0-only */
/* The current CUDA context and device of each thread. */
#ifndef VRAMPROF_CONTEXTS_H
#define VRAMPROF_CONTEXTS_H

#include "functions.h"
#include "losses.h"
#include "registers.h"
#include "threads.h"

struct context_key {
	u64 context;
	u64 pid;
};

MAP(contexts, BPF_MAP_TYPE_LRU_HASH, struct context_key, u32, 16384); /* → ordinal + 1 */

// Returns the ordinal + 1 of a context's device; 0: unknown.
static EBPF_INLINE u16 device_of(u64 context, u64 id)
{
	if (!context)
		return 0;
	struct context_key key = {context, id >> 32};
	u32 *device = bpf_map_lookup_elem(&contexts, &key);
	return device ? *device : 0;
}

static EBPF_INLINE void link_context(u64 context, u32 device, u64 id)
{
	if (!context || !device)
		return;
	struct context_key key = {context, id >> 32};
	if (!bpf_map_update_elem(&contexts, &key, &device, BPF_EXIST))
		return;
	long error;
	struct share *share = share_of(id, &error);
	if (!share || share->contexts >= MAX_CONTEXTS_OF_PROCESS) {
		lose(COUNTER_NOT_NOTED, id);
		return;
	}
	if (!bpf_map_update_elem(&contexts, &key, &device, BPF_NOEXIST))
		__sync_fetch_and_add(&share->contexts, 1);
}

static EBPF_INLINE void unlink_context(u64 context, u64 id)
{
	struct context_key key = {context, id >> 32};
	if (bpf_map_delete_elem(&contexts, &key))
		return;
	struct share *share = find_share(id);
	if (share && share->contexts)
		__sync_fetch_and_add(&share->contexts, -1);
}

// Returns the ordinal of a thread's current device; -1: unknown. The device of the current context
// may have been learned from another thread since.
static EBPF_INLINE s16 current_device(struct thread *thread, u64 id)
{
	if (!thread->device)
		thread->device = device_of(thread->context, id);
	if (!thread->device && thread->runtime_device) {
		struct function *outermost = find_function(thread->api);
		if (outermost && outermost->layer == LAYER_RUNTIME)
			return (s16)thread->runtime_device - 1;
	}
	return (s16)thread->device - 1;
}

static EBPF_INLINE void push_context(struct thread *thread, u64 context, u16 device)
{
	if (thread->pushed < MAX_PUSHED) {
		thread->below[thread->pushed & (MAX_PUSHED - 1)] = thread->context;
		thread->pushed++;
	} else {
		thread->pushed_lost++;
	}
	thread->context = context;
	thread->device = device;
}

static EBPF_INLINE void pop_context(struct thread *thread)
{
	thread->context = 0;
	thread->device = 0; // current_device looks it up
	if (thread->pushed_lost) {
		thread->pushed_lost--;
	} else if (thread->pushed) {
		thread->pushed--;
		thread->context = thread->below[thread->pushed & (MAX_PUSHED - 1)];
	}
}

// Makes a context current. A context that a runtime call makes current belongs to the runtime's
// device.
static EBPF_INLINE void set_context(struct thread *thread, u64 context, u32 depth, u64 id)
{
	u16 device = device_of(context, id);
	if (!device && context && depth > 0) {
		struct call *outer = &thread->calls[(depth - 1) & (MAX_DEPTH - 1)];
		struct function *function = find_function(outer->function);
		if (function && function->layer == LAYER_RUNTIME) {
			device = function->effect == EFFECT_SET_DEVICE ? argument(outer, function->extra) + 1 : thread->runtime_device;
			link_context(context, device, id);
		}
	}
	thread->context = context;
	thread->device = device;
}

#endif
