/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks that PyTorch's caching allocator gives out and takes back. One function reports both, holding the
 * allocator's lock: totals are kept here for every block, and only a sample becomes events. */
#ifndef VRAMPROF_BLOCKS_H
#define VRAMPROF_BLOCKS_H

#include "allocator_totals.h"
#include "block_sampling.h"
#include "block_table.h"
#include "filter.h"

/* Attach cookies of block_reported: whether reportMemoryUsageToProfiler has the allocator's totals (from PyTorch 1.10 on). */
enum block_cookie { BLOCK_WITHOUT_TOTALS = 3, BLOCK_WITH_TOTALS = 5 };

static EBPF_INLINE struct tensor_device *new_tensor_device(struct tensor_key *key, struct block_report *r, u64 now, u64 id)
{
	if (!is_traced(find_process(id)))
		return NULL;
	struct tensor_device *d = on_gpu(key->device) ? enter_allocator(&tensor_devices, &gpu_numbers, key, id)
						      : enter_allocator(&host_tensor_devices, &host_numbers, key, id);
	if (!d) {
		lose(COUNTER_THREADS_FULL, id);
		return NULL;
	}
	d->credit = SAVED_WINDOWS * window_samples;
	d->time = d->window = now;
	if (r->reserved && (r->size < 0 || r->allocated >= r->size)) // without totals: 0
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

// Books a block that was given out. Returns whether it is of the sample.
static EBPF_INLINE bool book_block(struct tensor_device *d, struct block_report *r, u64 now, u64 id)
{
	u64 size = r->size;
	u32 number = size_class(size);
	bool sampled = sample_block(d, number, r, now);
	u64 before = keep_block(d, r, block_value(size, sampled), id);
	if (before == NO_ROOM) {
		__sync_fetch_and_add(&d->unbooked, 1);
		lose_of(id);
		return false;
	}
	if (before) { // its free was not reported, as when a private pool is restored
		struct size_class *c = &d->classes[size_class(block_size(before)) & (SIZE_CLASSES - 1)];
		count_block(&c->frees, &c->free_bytes, block_size(before));
		__sync_fetch_and_add(&d->live, -(block_size(before)));
		if (is_sampled(before) && !sampled) // user space has it
			send_block(EVENT_BLOCK_FREE, r, 0, 0, id);
	}
	struct size_class *c = &d->classes[number & (SIZE_CLASSES - 1)];
	count_block(&c->allocs, &c->alloc_bytes, size);
	__sync_fetch_and_add(&d->live, size);
	return sampled;
}

// Takes a block back. Returns whether it was of the sample.
static EBPF_INLINE bool unbook_block(struct tensor_device *d, struct block_report *r, u64 id)
{
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
