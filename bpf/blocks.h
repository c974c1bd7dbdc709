/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks that PyTorch's allocators hand out and take back. One function of libc10 reports both.
 * Totals are kept here for every block; only sampled blocks become events. */
#ifndef VRAMPROF_BLOCKS_H
#define VRAMPROF_BLOCKS_H

#include "allocator_totals.h"
#include "block_sampling.h"
#include "block_table.h"
#include "filter.h"
#include "verifier.h"

/* Attach cookies of block_reported: whether the arguments of reportMemoryUsageToProfiler include
 * the allocator's totals, as from PyTorch 1.10 on. */
enum block_cookie { BLOCK_WITHOUT_TOTALS = 3, BLOCK_WITH_TOTALS = 5, BLOCK_APART = 256, BLOCK_ALWAYS = 512 };

// Reports whether PyTorch reports the end of a block too. It always does for memory of GPUs, and
// for shared memory, whose total reserved is its own size and whose total allocated is 0. It
// reports other host memory only while its profiler records memory, so the end of such a tensor may
// never come. Before 1.10 reports have no totals, and shared memory cannot be told from the rest.
static EBPF_INLINE bool has_reported_end(struct block_report *r, bool has_totals)
{
	if (on_gpu(r->device))
		return true;
	if (!has_totals || r->allocated)
		return false;
	return r->size < 0 || r->reserved == r->size;
}

// Creates the entry of an allocator at its first report, and sends its totals before that report.
static EBPF_INLINE struct tensor_device *new_tensor_device(struct tensor_key *key, struct block_report *r, u64 now, u64 id)
{
	if (!is_traced(find_process(id)))
		return NULL;
	struct tensor_device *d = on_gpu(key->device) ? enter_allocator(&tensor_devices, &gpu_numbers, key, id)
						      : enter_allocator(&host_tensor_devices, &host_numbers, key, id);
	if (!d)
		return NULL;
	d->credit = SAVED_WINDOWS * window_samples;
	d->level = window_samples;
	d->time = d->window = now;
	// 0 if the allocator reports no totals.
	if (r->reserved && (r->size < 0 || r->allocated >= r->size))
		d->older_allocated = r->allocated - r->size;
	d->older_reserved = r->reserved;
	d->allocated = d->peak = d->peak_left = d->sent_allocated = d->sent_older = d->older_allocated;
	d->reserved = d->sent_reserved = r->reserved;
	d->latest = d->sent = d->peak_time = now;
	struct block_report before = {.time = now, .allocated = d->older_allocated, .reserved = r->reserved, .device = r->device};
	send_block(EVENT_ALLOCATOR, &before, 0, 0, id);
	return d;
}

static EBPF_INLINE void count_block(u64 *blocks, u64 *bytes, u64 size)
{
	__sync_fetch_and_add(blocks, 1);
	__sync_fetch_and_add(bytes, size);
}

// Books a block that was handed out. Returns whether it is sampled.
VERIFIED_ONCE bool book_block(struct tensor_device *d, struct block_report *r, u64 now, u64 id)
{
	if (!d || !r)
		return false;
	u64 size = r->size;
	u32 number = size_class(size);
	bool sampled = sample_block(d, number, r, now);
	u64 before = keep_block(d, r, block_value(size, sampled), id);
	if (before == NO_ROOM) {
		__sync_fetch_and_add(&d->unbooked, 1);
		lose_of(id);
		return false;
	}
	// The free of an earlier block was not reported, as when a private pool is restored.
	if (before) {
		struct size_class *c = &d->classes[size_class(block_size(before)) & (SIZE_CLASSES - 1)];
		count_block(&c->frees, &c->free_bytes, block_size(before));
		__sync_fetch_and_add(&d->live, -(block_size(before)));
		if (is_sampled(before) && !sampled) // user space knows the earlier block as live
			send_block(EVENT_BLOCK_FREE, r, 0, 0, id);
	}
	struct size_class *c = &d->classes[number & (SIZE_CLASSES - 1)];
	count_block(&c->allocs, &c->alloc_bytes, size);
	__sync_fetch_and_add(&d->live, size);
	return sampled;
}

// Books a block that was taken back. Returns whether it was sampled.
VERIFIED_ONCE bool unbook_block(struct tensor_device *d, struct block_report *r, u64 id)
{
	if (!d || !r)
		return false;
	u64 value = drop_block(d, r, id);
	if (!value) {
		count_block(&d->older_frees, &d->older_bytes, -r->size);
		return false;
	}
	struct size_class *c = &d->classes[size_class(block_size(value)) & (SIZE_CLASSES - 1)];
	count_block(&c->frees, &c->free_bytes, block_size(value));
	__sync_fetch_and_add(&d->live, -(block_size(value)));
	return is_sampled(value);
}

#endif
