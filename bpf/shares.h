/* SPDX-License-Identifier: GPL-2.0-only */
/* What each process has of the tables and rings that all share. A process may have as much of one as is free: alone it gets half of
 * a table, and with N that want more than there is each gets one in N+1, and as much is left for those who come later. What
 * is refused, or has no room, is counted by process. */
#ifndef VRAMPROF_SHARES_H
#define VRAMPROF_SHARES_H

#include "helpers.h"
#include "map_macros.h"

#define MAX_CONTEXTS_OF_PROCESS 1024
#define MAX_CAPTURES_OF_PROCESS 256
#define MAX_ALLOCATORS_OF_PROCESS 32

enum table {
	TABLE_THREADS,
	TABLE_BLOCKS,
	TABLE_COUNT,
};

/* What a process wrote into a ring since it was at the mark. The reader has not passed it: all that may still be there. */
struct ring_share {
	u64 mark;    /* a position of the writer */
	u64 written; /* bytes */
};

struct share {
	u64 lost;        /* events and calls that were refused, or had no room */
	u64 lost_stacks;
	u64 threads;     /* entries in the map */
	u64 blocks;      /* room in the map, see reserve_blocks */
	u64 contexts;
	u64 allocators;
	struct ring_share events, stacks;
};

GROWING_MAP(shares, u32, struct share, 16384); /* tgid */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space takes off what those had that are gone */
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, TABLE_COUNT);
} tables SEC(".maps"); /* enum table → entries that are used */

static EBPF_INLINE u64 *find_table(u32 table) { return bpf_map_lookup_elem(&tables, &table); }

static EBPF_INLINE struct share *find_share(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&shares, &pid);
}

#endif
