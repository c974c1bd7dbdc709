/* SPDX-License-Identifier: GPL-2.0-only */
/* Reports of PyTorch's allocators: books blocks, and prepares the walks of sampled ones. */
#ifndef VRAMPROF_BLOCK_REPORTS_H
#define VRAMPROF_BLOCK_REPORTS_H

#include "attach_cookie.h"
#include "block_details.h"
#include "blocks.h"
#include "registers.h"
#include "thread_entries.h"

// Prepares the thread for a walk under an allocator's report. Calls that are still open have lost
// their return: an allocator reports outside of traced calls.
static EBPF_INLINE struct thread *begin_report(struct block_report *r, enum event_kind kind, u64 id)
{
	struct thread *thread = this_thread(id);
	if (!thread)
		return NULL;
	thread->report = *r;
	thread->report.kind = kind;
	thread->depth = 0;
	thread->stack = 0;
	thread->flags = 0;
	thread->caller = 0;
	thread->tag = r->time;
	count(COUNTER_STACKS);
	return thread;
}

// Books a block. Returns the thread if the block is sampled, so that its stack is wanted.
static EBPF_INLINE struct thread *note_block(struct pt_regs *ctx, u64 id)
{
	struct block_report r = {.address = ARGUMENT(1), .size = ARGUMENT(2)};
	bool has_totals = attach_cookie(ctx) == BLOCK_WITH_TOTALS;
	if (has_totals) {
		r.allocated = ARGUMENT(3);
		r.reserved = ARGUMENT(4);
		r.device = ARGUMENT(5);
	} else {
		r.device = ARGUMENT(3);
	}
	if (!has_reported_end(&r, has_totals))
		return NULL;
	struct tensor_key key = {.pid = id >> 32, .device = r.device};
	struct tensor_device *d = find_allocator(&key);
	u64 now = bpf_ktime_get_ns();
	if (!d)
		d = new_tensor_device(&key, &r, now, id);
	if (!d || !r.address || !r.size)
		return NULL;
	if (d->number == NO_NUMBER || r.address >> ADDRESS_BITS) { // another thread is creating it; no key
		__sync_fetch_and_add(&d->unbooked, 1);
		return NULL;
	}
	r.time = now;
	d->begun++;
	send_peak(d, &r, now, id);
	u32 flags = wants_details ? note_details(ctx, d, &r, now, id) : 0;
	bool sampled = r.size < 0 ? unbook_block(d, &r, id) : book_block(d, &r, now, id);
	take_totals(d, &r, now, has_totals);
	d->ended = d->begun;
	if (!sampled) {
		if (wants_details && r.size < 0 && on_gpu(r.device)) { // it is older: all others are sampled
			totals_sent(d, EVENT_BLOCK_FREE);
			send_block(EVENT_BLOCK_OLDER, &r, 0, flags, id);
		} else if (totals_drifted(d, &r))
			send_totals(d, r.device, now, id);
		return NULL;
	}
	if (r.size < 0) {
		totals_sent(d, EVENT_BLOCK_FREE);
		send_block(EVENT_BLOCK_FREE, &r, 0, flags, id);
		return NULL;
	}
	totals_sent(d, EVENT_BLOCK);
	return begin_report(&r, EVENT_BLOCK, id);
}

#endif
