/* SPDX-License-Identifier: GPL-2.0-only */
/* The live blocks of allocators. */
#ifndef VRAMPROF_BLOCK_TABLE_H
#define VRAMPROF_BLOCK_TABLE_H

#include "allocators.h"
#include "hash.h"
#include "losses.h"

/* A near table: live blocks of one GPU allocator, in sets of NEAR_WAYS entries that share a
 * cache line. It is much faster than the map blocks, which holds the blocks that do not fit
 * here. It needs no lock: a GPU allocator reports while it holds its own. */
#define NEAR_WAYS 4 /* a power of two */
#define NEAR_SET_BITS 9
#define NEAR_BLOCKS (NEAR_WAYS << NEAR_SET_BITS)
#define NEAR_TABLES 256 /* of 32 KiB each, for the allocators with the lowest numbers */
struct near_block {
	u64 address; /* 0: no block */
	u64 value;   /* as in the map blocks; 0: no block */
};
struct near_blocks {
	struct near_block block[NEAR_BLOCKS];
};
/* Allocator's number → near table. */
MAP(near_blocks, BPF_MAP_TYPE_ARRAY, u32, struct near_blocks, NEAR_TABLES);

/* The key of a live block: its address, which has 48 bits and is a multiple of 64, and its
 * allocator's number. User space reuses a number only after it has removed all blocks of its
 * allocator. */
enum block_key_bits {
	ALLOCATOR_BITS = 22,
	ALIGNMENT_BITS = 6,
};

/* The value of a live block: its size in bytes, and whether it is sampled. 0: no block. */
enum block_value_bits { SIZE_SHIFT = 1 };
static EBPF_INLINE u64 block_value(u64 size, bool sampled) { return size << SIZE_SHIFT | sampled; }
static EBPF_INLINE u64 block_size(u64 value) { return value >> SIZE_SHIFT; }
static EBPF_INLINE bool is_sampled(u64 value) { return value & 1; }

static EBPF_INLINE u64 block_key(u64 address, u32 allocator) { return address >> ALIGNMENT_BITS << ALLOCATOR_BITS | allocator; }

#define MAX_BLOCKS (4 << 20)

/* Entries of the map blocks. User space sets it. */
volatile const u64 max_blocks = 1;

GROWING_MAP(blocks, u64, u64, MAX_BLOCKS); /* block_key → value */

// Returns the near table of an allocator; NULL for host allocators and for high numbers.
static EBPF_INLINE struct near_blocks *near_blocks_of(struct tensor_device *d)
{
	u32 number = d->number;
	return bpf_map_lookup_elem(&near_blocks, &number);
}

// Returns the entry with an address, in the set of a block; NULL: none. Address 0 gives a free entry.
static EBPF_INLINE struct near_block *find_near(struct near_blocks *near, struct block_report *r, u64 address)
{
	if (!near)
		return NULL;
	u32 set = (r->address >> 9) * HASH_FACTOR >> (64 - NEAR_SET_BITS);
	struct near_block *b = &near->block[set * NEAR_WAYS & (NEAR_BLOCKS - NEAR_WAYS)];
#pragma unroll
	for (int i = 0; i < NEAR_WAYS; i++, b++)
		if (b->address == address)
			return b;
	return NULL;
}

#define NO_ROOM (~0ull)
/* Entries that an allocator reserves at a time, to change the shared counts rarely. */
#define ROOM 1024

// Reserves entries in the map blocks for an allocator, if its process may have more.
static EBPF_INLINE bool reserve_blocks(struct tensor_device *d, u64 id)
{
	u64 *used = find_table(TABLE_BLOCKS);
	struct share *share = find_share(id);
	if (!used || !share || (s64)share->blocks > (s64)(max_blocks - *used))
		return false;
	__sync_fetch_and_add(used, ROOM);
	__sync_fetch_and_add(&share->blocks, ROOM);
	__sync_fetch_and_add(&d->room, ROOM);
	return true;
}

// Releases entries that an allocator no longer needs.
static EBPF_INLINE void release_blocks(struct tensor_device *d, u64 id)
{
	u64 *used = find_table(TABLE_BLOCKS);
	struct share *share = find_share(id);
	if (!used || !share || share->blocks < ROOM)
		return;
	__sync_fetch_and_add(used, -ROOM);
	__sync_fetch_and_add(&share->blocks, -ROOM);
	__sync_fetch_and_add(&d->room, -ROOM);
}

// Stores a live block. Returns the value of an earlier block at its address, 0 if there is none, or
// NO_ROOM.
static EBPF_INLINE u64 keep_block(struct tensor_device *d, struct block_report *r, u64 value, u64 id)
{
	u64 key = block_key(r->address, d->number), before;
	struct near_blocks *table = near_blocks_of(d);
	struct near_block *near = find_near(table, r, r->address);
	if (!near && !(d->far && bpf_map_lookup_elem(&blocks, &key)))
		near = find_near(table, r, 0);
	if (near) {
		before = near->value;
		near->value = value;
		near->address = r->address;
		return before;
	}
	if (d->far >= d->room && !reserve_blocks(d, id))
		return NO_ROOM;
	if (!bpf_map_update_elem(&blocks, &key, &value, BPF_NOEXIST)) {
		__sync_fetch_and_add(&d->far, 1);
		return 0;
	}
	u64 *old = bpf_map_lookup_elem(&blocks, &key);
	if (!old)
		return NO_ROOM;
	before = *old;
	*old = value;
	return before;
}

// Removes a live block. Returns its value; 0: unknown block.
static EBPF_INLINE u64 drop_block(struct tensor_device *d, struct block_report *r, u64 id)
{
	struct near_block *near = find_near(near_blocks_of(d), r, r->address);
	u64 value;
	if (near) {
		value = near->value;
		near->address = 0;
		near->value = 0;
		return value;
	}
	if (!d->far)
		return 0;
	u64 key = block_key(r->address, d->number);
	u64 *old = bpf_map_lookup_elem(&blocks, &key);
	if (!old)
		return 0;
	value = *old;
	bpf_map_delete_elem(&blocks, &key);
	__sync_fetch_and_add(&d->far, -1);
	if (d->room > d->far + 2 * ROOM)
		release_blocks(d, id);
	return value;
}

#endif
