/* SPDX-License-Identifier: GPL-2.0-only */
/* An allocator's totals, and when they are sent to user space. */
#ifndef VRAMPROF_ALLOCATOR_TOTALS_H
#define VRAMPROF_ALLOCATOR_TOTALS_H

#include "allocators.h"
#include "block_events.h"

#define TOTALS_SHIFT 7

/* Totals are sent when they differ from the totals sent last by this many bytes, and by
 * 1/2^TOTALS_SHIFT of the allocated bytes. User space sets it. 0: send each change. */
volatile const u64 totals_step = 0;

// Sends the totals after the latest report. Events of sampled blocks do not show the changes by
// other blocks.
static EBPF_INLINE void send_totals(struct tensor_device *d, u16 device, u64 time, u64 id)
{
	struct block_report r = {
		.time = time, .allocated = d->allocated, .reserved = d->reserved, .live = d->live, .device = device, .totals = true,
	};
	d->sent = time;
	d->sent_allocated = d->allocated;
	d->sent_reserved = d->reserved;
	d->sent_older = d->allocated - d->live;
	send_block(EVENT_TOTALS, &r, 0, 0, id);
}

static EBPF_INLINE u64 distance(u64 a, u64 b)
{
	s64 d = a - b;
	return d < 0 ? -d : d;
}

// Reports whether the totals differ enough from those sent last.
static EBPF_INLINE bool totals_drifted(struct tensor_device *d, struct block_report *r)
{
	if (!on_gpu(r->device))
		return false;
	u64 step = d->allocated >> TOTALS_SHIFT;
	if (step < totals_step || !totals_step)
		step = totals_step;
	return d->reserved != d->sent_reserved || distance(d->allocated, d->sent_allocated) > step ||
	       distance(d->allocated - d->live, d->sent_older) > step;
}

// Sends the totals before a free that ends a new peak, unless an event has had them.
static EBPF_INLINE void send_peak(struct tensor_device *d, struct block_report *r, u64 now, u64 id)
{
	if (r->size >= 0 || d->allocated <= d->peak_left || !on_gpu(r->device))
		return;
	d->peak_left = d->allocated;
	if (d->sent >= d->latest)
		return;
	d->peak_time = now - 1;
	send_totals(d, r->device, now - 1, id);
}

// Takes the totals of a report whose block is already booked.
static EBPF_INLINE void take_totals(struct tensor_device *d, struct block_report *r, u64 now, bool has_totals)
{
	if (!has_totals)
		r->allocated = d->live;
	d->allocated = r->allocated;
	d->reserved = r->reserved;
	d->latest = now;
	if (d->allocated > d->peak) {
		d->peak = d->allocated;
		d->peak_time = now;
	}
	r->live = d->live;
	r->totals = true;
}

// Notes that the event of a sampled block has the totals.
static EBPF_INLINE void totals_sent(struct tensor_device *d, enum event_kind kind)
{
	d->sent = d->latest;
	d->sent_allocated = d->allocated;
	d->sent_reserved = d->reserved;
	if (kind == EVENT_BLOCK_FREE)
		d->sent_older = d->allocated - d->live;
}

#endif
