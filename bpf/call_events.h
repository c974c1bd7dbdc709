/* SPDX-License-Identifier: GPL-2.0-only */
/* Events of traced functions. */
#ifndef VRAMPROF_CALL_EVENTS_H
#define VRAMPROF_CALL_EVENTS_H

#include "captures.h"
#include "contexts.h"
#include "functions.h"
#include "registers.h"
#include "rings.h"
#include "threads.h"

static EBPF_INLINE void fill_event(struct event *event, struct thread *thread, struct call *call,
				   struct function *function, enum event_kind kind, u64 id, u64 time, u64 address, s32 result)
{
	begin_event(event, kind, id);
	event->time = time;
	event->address = address;
	event->result = result;
	event->size = argument(call, function->size);
	event->stack = thread->stack;
	event->context = thread->context;
	event->extra = argument(call, function->extra);
	event->device = current_device(thread, id);
	event->flags = thread->flags;
	if (function->stream)
		event->flags |= capture_flags(argument(call, function->stream), id);
	event->api = thread->api;
	event->function = call->function;
	if (kind == EVENT_ALLOC && event->device < 0 && !thread->unplaced_since)
		thread->unplaced_since = call->time;
}

// Reports whether to wake the reader at once: after an out-of-memory error the process may free
// much.
static EBPF_INLINE bool is_urgent(enum event_kind kind, s32 result)
{
	return kind == EVENT_ALLOC_FAILED && result == CUDA_OUT_OF_MEMORY;
}

// Sends a call's event. It is built in the ring's memory, which saves a copy and stack.
static EBPF_INLINE void send_call(struct thread *thread, struct call *call, struct function *function,
				  enum event_kind kind, u64 id, u64 time, u64 address, s32 result)
{
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	fill_event(event, thread, call, function, kind, id, time, address, result);
	bpf_ringbuf_submit(event, wakeup_flag(is_urgent(kind, result)));
}

struct detailed_event {
	struct event event;
	struct details details;
};

// Sends a call's event with the details that user space needs to find size, device or origin.
static EBPF_INLINE void send_details(struct thread *thread, struct call *call, struct function *function,
				     enum event_kind kind, u64 id, u64 time, u64 address, s32 result)
{
	struct detailed_event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	fill_event(&event->event, thread, call, function, kind, id, time, address, result);
	struct details *details = &event->details;
	__builtin_memcpy(details->argument, call->argument, sizeof(details->argument));
	bool complete = true;
	if (function->by_value_size) {
		__builtin_memcpy(details->by_value, thread->by_value, BY_VALUE_SIZE);
		complete = thread->by_value_valid;
	}
	u32 size = function->behind_size;
	if (size > BEHIND_SIZE)
		size = BEHIND_SIZE;
	if (size && bpf_probe_read_user(details->behind, size, (void *)argument(call, function->behind) + function->behind_offset))
		complete = false;
	if (!complete)
		event->event.flags |= FLAG_NO_DETAILS;
	bpf_ringbuf_submit(event, wakeup_flag(is_urgent(kind, result)));
}

static EBPF_INLINE void report(struct thread *thread, struct call *call, struct function *function,
			       enum event_kind kind, u64 id, u64 address, s32 result)
{
	u64 time = function->at_entry ? call->time : bpf_ktime_get_ns();
	if (function->details)
		send_details(thread, call, function, kind, id, time, address, result);
	else
		send_call(thread, call, function, kind, id, time, address, result);
}

#endif
