/* SPDX-License-Identifier: GPL-2.0-only */
/* Counts of stacks, and of what the kernel half could not do. */
#ifndef VRAMPROF_COUNTERS_H
#define VRAMPROF_COUNTERS_H

#include "map_macros.h"

/* Index of the counters map. */
enum counter {
	COUNTER_EVENT_LOST, /* the ring of events was full */
	COUNTER_EVENT_REFUSED, /* the process had used its share of the ring of events */
	COUNTER_STACK_LOST, /* the ring of stacks was full */
	COUNTER_TABLE_FULL, /* a map of threads or allocators was full, or the process had its share */
	COUNTER_NO_MEMORY, /* the kernel did not create an entry for a thread or allocator */
	COUNTER_TOO_DEEP, /* traced calls nested deeper than MAX_DEPTH */
	COUNTER_UNREADABLE, /* reading the result pointer failed */
	COUNTER_NOT_NOTED, /* contexts and captures beyond the limits of a process */
	COUNTER_STACKS, /* stacks wanted */
	COUNTER_NO_TABLES, /* stacks not taken: the unwinder does not know the process */
	COUNTER_TORN, /* stacks overwritten by a preempting thread */
	COUNTER_CHAIN_BROKEN, /* the tail call into the unwinder failed */
	COUNTER_NOT_FOLLOWED, /* children of followed processes: the map of processes was full */
	COUNTER_NOT_HELD, /* libraries loaded without stopping the process */
	COUNTER_COUNT,
};

MAP(counters, BPF_MAP_TYPE_ARRAY, enum counter, u64, COUNTER_COUNT);

static EBPF_INLINE void add_count(enum counter counter, u64 n)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		__sync_fetch_and_add(value, n);
}

static EBPF_INLINE void count(enum counter counter) { add_count(counter, 1); }

#endif
