/* SPDX-License-Identifier: GPL-2.0-only */
/* The share of each process in the tables and rings that all processes use. A process may take
 * as much of a table as is free: one process gets at most half of it, and N greedy processes get
 * 1/(N+1) each, so 1/(N+1) stays free for newcomers. Losses are counted by process. */
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

/* Bytes that a process wrote into a ring since the writer was at the mark. The reader has not
 * passed the mark, so all of them may still be unread. */
struct ring_share {
	u64 mark;    /* position of the writer */
	u64 written; /* bytes */
};

struct share {
	u64 lost;        /* events and calls that were refused, or did not fit */
	u64 lost_stacks;
	u64 threads;     /* entries in the map threads */
	u64 blocks;      /* entries reserved in the map blocks, see reserve_blocks */
	u64 contexts;
	u64 allocators;
	struct ring_share events, stacks;
};

GROWING_MAP(shares, u32, struct share, 16384); /* tgid */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space subtracts the entries of ended processes */
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, TABLE_COUNT);
} tables SEC(".maps"); /* enum table → entries in use */

static EBPF_INLINE u64 *find_table(u32 table) { return bpf_map_lookup_elem(&tables, &table); }

static EBPF_INLINE struct share *find_share(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&shares, &pid);
}

#endif
