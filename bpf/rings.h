/* SPDX-License-Identifier: GPL-2.0-only */
/* The rings to user space: which process may write how much into them, and when the reader wakes. */
#ifndef VRAMPROF_RINGS_H
#define VRAMPROF_RINGS_H

#include "event.h"
#include "helpers.h"
#include "losses.h"

/* Bytes of the rings. */
volatile const u64 events_size = 1, stacks_size = 1;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} stack_events SEC(".maps");

MAP(reader_sleeps, BPF_MAP_TYPE_ARRAY, u32, u32, 1); /* user space looks into the events ring rarely: the next event wakes it */

/* Waking the reader costs the traced thread more than its event: only what is urgent does, and the first after a while. */
static EBPF_INLINE u64 wakeup_flag(bool urgent)
{
	if (urgent)
		return BPF_RB_FORCE_WAKEUP;
	u32 zero = 0;
	u32 *sleeps = bpf_map_lookup_elem(&reader_sleeps, &zero);
	if (!sleeps || !*sleeps)
		return BPF_RB_NO_WAKEUP;
	*sleeps = 0;
	return BPF_RB_FORCE_WAKEUP;
}

// Says whether a process may write no more into a ring: what it wrote that may still be there is more than is free.
static EBPF_INLINE bool exceeds_share(struct ring_share *share, void *ring, u64 size, u64 bytes)
{
	u64 writer = bpf_ringbuf_query(ring, BPF_RB_PROD_POS), reader = bpf_ringbuf_query(ring, BPF_RB_CONS_POS);
	if ((s64)(reader - share->mark) >= 0) {
		share->mark = writer;
		share->written = 0;
	}
	if ((s64)share->written > (s64)(size - (writer - reader)))
		return true;
	__sync_fetch_and_add(&share->written, bytes);
	return false;
}

// Reserves room for an event. While less than half of the ring is used nobody is asked what he has of it.
static EBPF_INLINE void *reserve_event(u64 size, enum counter counter, u64 id)
{
	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > events_size / 2) {
		struct share *share = find_share(id);
		if (share && exceeds_share(&share->events, &events, events_size, size)) {
			lose(counter, id);
			return NULL;
		}
	}
	void *event = bpf_ringbuf_reserve(&events, size, 0);
	if (!event)
		lose(counter, id);
	return event;
}

// An event that asks user space to act, at once.
static EBPF_INLINE void send_note(enum event_kind kind, u64 id)
{
	struct event *event = reserve_event(sizeof(*event), COUNTER_EVENT_LOST, id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	fill_note(event, kind, id);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* Bytes of a stack in its ring. */
#define STACK_SIZE(words) (__builtin_offsetof(Trace, frame_data) + sizeof(((Trace *)0)->frame_data[0]) * (words))
_Static_assert(STACK_SIZE(0) + sizeof(((Trace *)0)->frame_data) == sizeof(Trace), "the frames end a Trace");

// Says whether a process may send no more stacks now. While less than half of the ring is used nobody is asked.
static EBPF_INLINE u32 is_stack_refused(u64 words, u32 *pid)
{
	if (bpf_ringbuf_query(&stack_events, BPF_RB_AVAIL_DATA) <= stacks_size / 2)
		return 0;
	struct share *share = bpf_map_lookup_elem(&shares, pid);
	return share && exceeds_share(&share->stacks, &stack_events, stacks_size, STACK_SIZE(words));
}

#endif
