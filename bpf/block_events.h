/* SPDX-License-Identifier: GPL-2.0-only */
/* Events of PyTorch's allocators. */
#ifndef VRAMPROF_BLOCK_EVENTS_H
#define VRAMPROF_BLOCK_EVENTS_H

#include "rings.h"
#include "threads.h"

static EBPF_INLINE void send_block(enum event_kind kind, struct block_report *r, u64 stack, u32 flags, u64 id)
{
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	begin_event(event, kind, id);
	event->time = r->time;
	event->address = r->address;
	event->size = kind == EVENT_BLOCK_FREE || kind == EVENT_TOTALS || kind == EVENT_BLOCK_OLDER ? r->live : r->size;
	event->stack = stack;
	event->context = r->allocated;
	event->extra = r->reserved;
	event->result = r->device & 0xff;
	event->device = (s8)(r->device >> 8);
	event->flags = r->totals ? flags | FLAG_TOTALS : flags;
	event->api = 0;
	event->halvings = r->halvings;
	bpf_ringbuf_submit(event, wakeup_flag(kind == EVENT_BLOCK_FAILED));
}

// Sends the event of the block whose stack a thread has.
static EBPF_INLINE void send_block_of(struct thread *thread, u64 id)
{
	send_block(thread->report.kind, &thread->report, thread->stack, thread->flags, id);
	thread->report.kind = 0;
}

// Sends the event of the block whose stack was just walked, if the walk was for a block.
static EBPF_INLINE void send_waiting_block(u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (thread && thread->report.kind)
		send_block_of(thread, id);
}

#endif
