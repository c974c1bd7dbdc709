/* SPDX-License-Identifier: GPL-2.0-only */
/* Effects of calls on the thread's current context and device. */
#ifndef VRAMPROF_EFFECTS_H
#define VRAMPROF_EFFECTS_H

#include "captures.h"
#include "contexts.h"
#include "rings.h"

// Tells user space the device of the thread's earlier allocations without a device. context is the
// context that was believed to be current until now.
static EBPF_INLINE void send_learned(struct thread *thread, struct call *call, u64 context, u64 id)
{
	if (!thread->device || !thread->unplaced_since)
		return;
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	begin_event(event, EVENT_LEARNED, id);
	event->time = call->time;
	event->address = thread->unplaced_since;
	event->size = (u64)thread->pushed + thread->pushed_lost;
	event->context = context;
	event->device = (s16)thread->device - 1;
	event->api = call->function;
	event->function = call->function;
	bpf_ringbuf_submit(event, wakeup_flag(false));
	if (!thread->pushed && !thread->pushed_lost)
		thread->unplaced_since = 0;
}

// Applies the effect of a successful call. address is what read_address returned.
static EBPF_INLINE void apply_effect(struct thread *thread, struct call *call, struct function *function, u32 depth,
				     u64 id, u64 address)
{
	u16 device = argument(call, function->extra) + 1;
	u64 context = thread->context;
	bool unknown = !thread->device && !device_of(context, id);
	switch (function->effect) {
	case EFFECT_SET_CONTEXT:
		set_context(thread, address, depth, id);
		thread->unplaced_since = 0;
		break;
	case EFFECT_PUSH_CONTEXT: push_context(thread, address, device_of(address, id)); break;
	case EFFECT_POP_CONTEXT:
		if (!thread->pushed && !thread->pushed_lost)
			thread->unplaced_since = 0; // pushed before the attach
		pop_context(thread);
		break;
	case EFFECT_CREATE_CONTEXT:
		link_context(address, device, id);
		push_context(thread, address, device);
		break;
	case EFFECT_RETAIN_CONTEXT:
		link_context(address, device, id);
		break;
	case EFFECT_DERIVE_CONTEXT:
		link_context(address, device_of(argument(call, function->extra), id), id);
		break;
	case EFFECT_BEGIN_CAPTURE: begin_capture(address, id); break;
	case EFFECT_DESTROY_CONTEXT:
		unlink_context(address, id);
		if (thread->context == address)
			pop_context(thread);
		break;
	case EFFECT_SET_DEVICE:
		thread->runtime_device = device;
		thread->unplaced_since = 0;
		// The runtime makes the context current in a later call.
		if (thread->device != device) {
			thread->context = 0;
			thread->device = device;
		}
		break;
	case EFFECT_LEARN_CONTEXT:
		thread->context = address;
		thread->device = device_of(address, id);
		break;
	case EFFECT_LEARN_DEVICE:
		device = address + 1;
		if (function->layer == LAYER_RUNTIME)
			thread->runtime_device = device;
		if (!thread->device)
			thread->device = device;
		if (thread->device == device && !device_of(thread->context, id))
			link_context(thread->context, device, id);
		break;
	}
	if (unknown && (function->effect == EFFECT_LEARN_CONTEXT || function->effect == EFFECT_LEARN_DEVICE))
		send_learned(thread, call, context, id);
}

#endif
