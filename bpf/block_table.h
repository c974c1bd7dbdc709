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
struct near_table {
	struct near_block block[NEAR_BLOCKS];
};
/* 0 → a map: allocator's number → near table. User space creates it when it first sees a PyTorch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, u32);
	__uint(max_entries, 1);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_ARRAY);
		__type(key, u32);
		__type(value, struct near_table);
		__uint(max_entries, NEAR_TABLES);
	});
} near_blocks SEC(".maps");

/* The key of a live block: its address, which has ADDRESS_BITS and is a multiple of 64, and its
 * allocator's number. User space reuses a number only after it has removed all blocks of its
 * allocator. User addresses have 56 bits on x86-64 with five levels of page tables, 52 on arm64. */
enum block_key_bits {
	ALLOCATOR_BITS = 14,
	ALIGNMENT_BITS = 6,
	ADDRESS_BITS = 64 - ALLOCATOR_BITS + ALIGNMENT_BITS,
};
_Static_assert(MAX_GPU_ALLOCATORS + MAX_HOST_ALLOCATORS <= 1 << ALLOCATOR_BITS, "a key has room for each allocator's number");

/* The value of a live block: its size in bytes, and whether it is sampled. 0: no block. */
enum block_value_bits { SIZE_SHIFT = 1 };
static EBPF_INLINE u64 block_value(u64 size, bool sampled) { return size << SIZE_SHIFT | sampled; }
static EBPF_INLINE u64 block_size(u64 value) { return value >> SIZE_SHIFT; }
static EBPF_INLINE bool is_sampled(u64 value) { return value & 1; }

static EBPF_INLINE u64 block_key(u64 address, u32 allocator) { return address >> ALIGNMENT_BITS << ALLOCATOR_BITS | allocator; }

#define MAX_BLOCKS (4 << 20)

/* Entries of all maps in blocks. User space sets it. */
volatile const u64 max_blocks = 1;

/* Maps: block_key → value. User space creates the first when it first sees a PyTorch, and the second,
 * which is larger, when the first fills up: the buckets of a map take memory from its creation. */
#define BLOCK_MAPS 2
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__type(key, u32);
	__uint(max_entries, BLOCK_MAPS);
	__array(values, struct {
		__uint(type, BPF_MAP_TYPE_HASH);
		__uint(map_flags, BPF_F_NO_PREALLOC);
		__type(key, u64);
		__type(value, u64);
		__uint(max_entries, MAX_BLOCKS); /* of all */
	});
} blocks SEC(".maps");

// Returns the near table of an allocator; NULL for host allocators and for high numbers.
static EBPF_INLINE struct near_table *near_blocks_of(struct tensor_device *d)
{
	u32 zero = 0, number = d->number;
	void *tables = bpf_map_lookup_elem(&near_blocks, &zero);
	return tables ? bpf_map_lookup_elem(tables, &number) : NULL;
}

// Returns the value of a block in the maps of blocks; NULL: none has it. Keys of the map of maps
// are the lower halves of words: the verifier would remember each half on the stack, and follow
// what comes later twice as often.
static EBPF_INLINE u64 *find_far(u64 key)
{
#pragma unroll
	for (u32 i = 0; i < BLOCK_MAPS; i++) {
		u64 at = i;
		void *map = bpf_map_lookup_elem(&blocks, &at);
		u64 *value = map ? bpf_map_lookup_elem(map, &key) : NULL;
		if (value)
			return value;
	}
	return NULL;
}

static EBPF_INLINE void delete_far(u64 key)
{
#pragma unroll
	for (u32 i = 0; i < BLOCK_MAPS; i++) {
		u64 at = i;
		void *map = bpf_map_lookup_elem(&blocks, &at);
		if (map && !bpf_map_delete_elem(map, &key))
			return;
	}
}

// Stores a block in the first map of blocks that is not full. Returns 0 on success.
static EBPF_INLINE long add_far(u64 key, u64 value)
{
	long error = -E2BIG;
#pragma unroll
	for (u32 i = 0; i < BLOCK_MAPS; i++) {
		u64 at = i;
		void *map = bpf_map_lookup_elem(&blocks, &at);
		if (map && error == -E2BIG)
			error = bpf_map_update_elem(map, &key, &value, BPF_NOEXIST);
	}
	return error;
}

// Returns the entry with an address, in the set of a block; NULL: none. Address 0 gives a free
// entry.
static EBPF_INLINE struct near_block *find_near(struct near_table *near, struct block_report *r, u64 address)
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
	struct near_table *table = near_blocks_of(d);
	struct near_block *near = find_near(table, r, r->address);
	u64 *far = near || !d->far ? NULL : find_far(key);
	if (!near && !far)
		near = find_near(table, r, 0);
	if (near) {
		before = near->value;
		near->value = value;
		near->address = r->address;
		return before;
	}
	if (!far) {
		if (d->far >= d->room && !reserve_blocks(d, id))
			return NO_ROOM;
		if (!add_far(key, value)) {
			__sync_fetch_and_add(&d->far, 1);
			return 0;
		}
		far = find_far(key); // another thread was faster
		if (!far)
			return NO_ROOM;
	}
	before = *far;
	*far = value;
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
	u64 *far = find_far(key);
	if (!far)
		return 0;
	value = *far;
	delete_far(key);
	__sync_fetch_and_add(&d->far, -1);
	if (d->room > d->far + 2 * ROOM)
		release_blocks(d, id);
	return value;
}

#endif
