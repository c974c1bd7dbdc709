/* SPDX-License-Identifier: GPL-2.0-only */
/* The hashes of stacks that were sent. A hash table in an array takes a fifth of the memory of an
 * LRU map, and needs no lock. A stack whose hash was displaced is sent again. */
#ifndef VRAMPROF_SENT_STACKS_H
#define VRAMPROF_SENT_STACKS_H

#include "helpers.h"
#include "map_macros.h"

enum sent_stacks_size {
	SENT_SETS = 32768, /* a power of two */
	SENT_WAYS = 8,     /* a power of two: a set fills a cache line */
};
struct sent_stacks {
	u64 hash[SENT_WAYS]; /* 0: none */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space removes hashes */
	__type(key, u32);
	__type(value, struct sent_stacks);
	__uint(max_entries, SENT_SETS);
} stacks SEC(".maps");

// Returns the set that can contain a hash. stacks.Sent in Go computes the same.
static EBPF_INLINE struct sent_stacks *sent_set(u64 hash)
{
	u32 set = hash >> 32 & (SENT_SETS - 1);
	return bpf_map_lookup_elem(&stacks, &set);
}

static EBPF_INLINE bool was_sent(u64 hash)
{
	struct sent_stacks *set = sent_set(hash);
	if (!set)
		return false;
#pragma unroll
	for (int i = 0; i < SENT_WAYS; i++)
		if (set->hash[i] == hash)
			return true;
	return false;
}

// Notes a stack that was sent, in place of any other if its set is full.
static EBPF_INLINE void note_sent(u64 hash)
{
	struct sent_stacks *set = sent_set(hash);
	if (!set)
		return;
	u32 at = hash & (SENT_WAYS - 1);
#pragma unroll
	for (int i = 0; i < SENT_WAYS; i++)
		if (!set->hash[i]) {
			at = i;
			break;
		}
	set->hash[at & (SENT_WAYS - 1)] = hash;
}

#endif
