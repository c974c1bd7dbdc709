/* SPDX-License-Identifier: GPL-2.0-only */
/* A cache of walks. A program allocates from the same places again and again. A walk depends
 * only on the registers at its start, the words of memory that it reads, and the unwind tables.
 * So each walk records the words that it reads. A later walk from the same registers compares
 * these words, at a twentieth of the cost of a walk, and reuses the stack if all are equal. The
 * result is exact: the walk would read the same words and take the same steps.
 *
 * Different walks from the same registers form a tree: where a word differs, its position and
 * value are hashed into the key of the next walk to compare. */
#ifndef VRAMPROF_WALK_RECALL_H
#define VRAMPROF_WALK_RECALL_H

#include "processes.h"
#include "registers.h"
#include "threads.h"
#include "unwinder_functions.h"
#include "verifier.h"
#include "walk_recording.h"

#define MAX_BRANCHES 40 /* remembered walks that are compared one after another */
#define MAX_WALKS 8192  /* of 3 KiB each */

MAP(walks, BPF_MAP_TYPE_LRU_HASH, u64, struct walk, MAX_WALKS);

/* Per-CPU memory of the comparison: windows of the stack and of the memory of Python frames. Most of
 * the time of a comparison goes into reads, and a read of some kilobytes takes less than two of one
 * kilobyte. Words of native frames are at rising addresses, Python frames, from 3.11 on, at falling
 * addresses. No window extends into the next page, which may be out of memory. */
#define WINDOW_SIZE 4096 /* the smallest page */
struct scratch {
	u64 window_at, window_size; /* address of the first byte in window, and its bytes; 0: none */
	u64 frames_at, frames_size; /* likewise for frames */
	u64 value;     /* value of the current check */
	u64 next;      /* index of the next check */
	u64 walking;   /* current walks on this CPU, see count_walks */
	u8 window[WINDOW_SIZE];
	/* Large enough for a frame at every index that the mask allows, and for the offsets of
	 * fields that older verifiers assume. */
	u8 frames[WINDOW_SIZE + 2 * PYTHON_FRAME_SIZE];
};

MAP(scratches, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct scratch, 1);

// Returns the key of walks by the same thread from the same registers with the same tables.
static EBPF_INLINE u64 walk_key(struct pt_regs *ctx, struct process *process, u64 id)
{
	u64 key = mix(mix(process->seed, process->generation), id);
#if defined(__x86_64__)
	return mix(mix(key, ctx->ip), ctx->sp);
#else
	return mix(mix(mix(mix(key, ctx->pc), ctx->sp), ctx->regs[29]), ctx->regs[30]);
#endif
}

// Reads a Python frame, and returns the hash of its fields in value. Returns 0 on success.
static EBPF_INLINE long read_python_frame(struct scratch *scratch, const PyProcInfo *python, u64 address, u64 *value)
{
	if (!python)
		return -1;
	u64 offset = address - scratch->frames_at;
	if (offset >= WINDOW_SIZE || offset + PYTHON_FRAME_SIZE > scratch->frames_size) {
		// From the beginning of the page. Before 3.11, frames are anywhere.
		offset = python->lasti_is_codeunit ? address & (WINDOW_SIZE - 1) : 0;
		scratch->frames_at = address - offset;
		scratch->frames_size = offset + PYTHON_FRAME_SIZE;
		if (bpf_probe_read_user(scratch->frames, offset + PYTHON_FRAME_SIZE, (void *)scratch->frames_at)) {
			scratch->frames_size = 0;
			return -1;
		}
	}
	// Older verifiers forget the offset's bound: mask it again, hidden from the compiler.
	asm volatile("" : "+r"(offset));
	*value = hash_python_frame(python, &scratch->frames[offset & (WINDOW_SIZE - 1)]);
	return 0;
}

// Reads the current value of a check. Words near above the stack pointer are read through the
// window. Returns 0 on success.
static EBPF_INLINE long read_check(struct scratch *scratch, const PyProcInfo *python, struct pt_regs *ctx,
				   struct check *check, u64 *value)
{
	u64 address = check->address & ((1ull << CHECK_KIND_SHIFT) - 1);
	u64 kind = check->address >> CHECK_KIND_SHIFT;
	if (kind == CHECK_INT)
		return bpf_probe_read_user(value, 4, (void *)address);
	if (kind == CHECK_PYTHON_FRAME)
		return read_python_frame(scratch, python, address, value);
	if (kind == CHECK_FRAME_POINTER) {
		*value = frame_pointer(ctx);
		return 0;
	}
	u64 offset = address - scratch->window_at;
	if (offset > WINDOW_SIZE - 8 || offset + 8 > scratch->window_size) {
		// To the end of the page.
		u32 size = WINDOW_SIZE - (address & (WINDOW_SIZE - 1));
		if (address - ctx->sp > 1 << 20 || size < 8 ||
		    bpf_probe_read_user(scratch->window, size, (void *)address))
			return bpf_probe_read_user(value, 8, (void *)address);
		scratch->window_at = address;
		scratch->window_size = size;
		offset = 0;
	}
	if (offset & 7)
		return bpf_probe_read_user(value, 8, (void *)address);
	asm volatile("" : "+r"(offset)); // as in read_python_frame
	*value = *(u64 *)(scratch->window + (offset & (WINDOW_SIZE - 8)));
	return 0;
}

// Reports whether a remembered walk still reads the same words, and reuses its stack. Otherwise
// thread->walk is the key under which to remember the walk that has to be done; 0: none. The loop
// keeps its state in a map, where the verifier does not track it: it would visit every iteration in
// every state.
static EBPF_INLINE bool recall_walk(struct pt_regs *ctx, struct thread *thread, struct process *process, u64 id)
{
	u32 zero = 0;
	thread->walk = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!process || !scratch)
		return false;
	scratch->window_size = 0;
	scratch->frames_size = 0;
	scratch->next = 0;
	u32 layout = process->layout;
	const PyProcInfo *python = bpf_map_lookup_elem(&py_procs, &layout);
	u64 key = walk_key(ctx, process, id);
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);
#pragma unroll 1
	repeat(MAX_CHECKS + MAX_BRANCHES) {
		if (!walk) {
			thread->walk = key;
			return false;
		}
		u64 n = scratch->next;
		asm volatile("" : "+r"(n)); // one register for the comparison and the index
		if (n >= walk->checks || n >= MAX_CHECKS) {
			thread->stack = walk->stack;
			thread->api = walk->api;
			return true;
		}
		struct check *check = &walk->check[n];
		scratch->next = n + 1;
		scratch->value = 0;
		if (read_check(scratch, python, ctx, check, &scratch->value))
			return false;
		if (scratch->value == check->value)
			continue;
		key = mix(mix(key, scratch->next), scratch->value);
		walk = bpf_map_lookup_elem(&walks, &key);
	}
	return false;
}

// Remembers the walk that was just recorded on this CPU.
static EBPF_INLINE void remember_walk(struct thread *thread)
{
	struct walk *walk = current_recording();
	if (!walk || !thread->walk || walk->checks > MAX_CHECKS)
		return;
	walk->stack = thread->stack;
	walk->api = thread->api;
	bpf_map_update_elem(&walks, &thread->walk, walk, BPF_ANY);
}

#endif
