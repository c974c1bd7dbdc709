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

/* Not 0: reports come from the links of single processes, otherwise from those of all. */
MAP(reports_apart, BPF_MAP_TYPE_ARRAY, u32, u32, 1);

// Returns whether the report counts that a link has seen. While links are exchanged, a process has
// one of each kind, and both see each report.
static EBPF_INLINE bool is_link_used(u64 cookie)
{
	u32 zero = 0;
	u32 *apart = bpf_map_lookup_elem(&reports_apart, &zero);
	return (cookie & BLOCK_ALWAYS) || (apart && !*apart == !(cookie & BLOCK_APART));
}

// Reads a report from the arguments. Returns whether it has totals.
static EBPF_INLINE bool read_report(struct pt_regs *ctx, struct block_report *r)
{
	r->address = ARGUMENT(1);
	r->size = ARGUMENT(2);
	bool has_totals = (attach_cookie(ctx) & 0xff) == BLOCK_WITH_TOTALS;
	if (has_totals) {
		r->allocated = ARGUMENT(3);
		r->reserved = ARGUMENT(4);
		r->device = ARGUMENT(5);
	} else {
		r->device = ARGUMENT(3);
	}
	return has_totals;
}

// Books a block. Returns the thread if the block is sampled, so that its stack is wanted.
static EBPF_INLINE struct thread *note_block(struct pt_regs *ctx, u64 id)
{
	struct block_report r = {};
	if (!is_link_used(attach_cookie(ctx)))
		return NULL;
	bool has_totals = read_report(ctx, &r);
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
	bool sampled = r.size < 0 ? unbook_block(d, &r, id) : book_block(d, &r, now, id);
	take_totals(d, &r, now, has_totals);
	d->ended = d->begun;
	u32 flags = wants_details ? detail_flags(&key) : 0;
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
