/* SPDX-License-Identifier: GPL-2.0-only */
/* The rings to user space: how much each process may write, and when the reader wakes up. */
#ifndef VRAMPROF_RINGS_H
#define VRAMPROF_RINGS_H

#include "event.h"
#include "helpers.h"
#include "losses.h"

/* Sizes of the rings in bytes. User space sets them. */
volatile const u64 events_size = 1, stacks_size = 1;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} stack_events SEC(".maps");

/* User space sets it while it polls the ring of events rarely: the next event wakes it up. */
MAP(reader_sleeps, BPF_MAP_TYPE_ARRAY, u32, u32, 1);

// Waking the reader costs the traced thread more than its event. So only urgent events wake it, and
// the first event after a pause.
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

// Reports whether a process may write no more into a ring: more of its bytes may be unread than are
// free. Otherwise it adds the bytes to the process's share.
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

// Reserves space for an event. Shares are checked only while the ring is more than half full.
static EBPF_INLINE void *reserve_event(u64 size, u64 id)
{
	if (bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > events_size / 2) {
		struct share *share = find_share(id);
		if (share && exceeds_share(&share->events, &events, events_size, size)) {
			lose(COUNTER_EVENT_REFUSED, id);
			return NULL;
		}
	}
	void *event = bpf_ringbuf_reserve(&events, size, 0);
	if (!event)
		lose(COUNTER_EVENT_LOST, id);
	return event;
}

// Sends an event without an address, and wakes the reader: user space has to act at once.
static EBPF_INLINE void send_note(enum event_kind kind, u64 id)
{
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	fill_note(event, kind, id);
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

/* Size of a stack in its ring, in bytes. */
#define STACK_SIZE(words) (__builtin_offsetof(Trace, frame_data) + sizeof(((Trace *)0)->frame_data[0]) * (words))
_Static_assert(STACK_SIZE(0) + sizeof(((Trace *)0)->frame_data) == sizeof(Trace), "the frames end a Trace");

// Reports whether a process may send no more stacks now. Shares are checked only while the ring is
// more than half full.
static EBPF_INLINE u32 is_stack_refused(u64 words, u32 *pid)
{
	if (bpf_ringbuf_query(&stack_events, BPF_RB_AVAIL_DATA) <= stacks_size / 2)
		return 0;
	struct share *share = bpf_map_lookup_elem(&shares, pid);
	return share && exceeds_share(&share->stacks, &stack_events, stacks_size, STACK_SIZE(words));
}

#endif
