/* SPDX-License-Identifier: GPL-2.0-only */
/* Counts what the kernel half could not do. */
#ifndef VRAMPROF_COUNTERS_H
#define VRAMPROF_COUNTERS_H

#include "map_macros.h"

/* What the kernel half could not do, by reason; index of the counters map. */
enum counter {
	COUNTER_EVENT_LOST,   /* no room in the events ring */
	COUNTER_STACK_LOST,   /* no room in the stacks ring */
	COUNTER_THREADS_FULL, /* no room to remember an open call */
	COUNTER_TOO_DEEP,     /* traced calls nested deeper than MAX_DEPTH */
	COUNTER_UNREADABLE,   /* the result pointer could not be read */
	COUNTER_STACKS,       /* stacks asked for */
	COUNTER_NO_TABLES,    /* stacks not taken: process unknown to the unwinder */
	COUNTER_TORN,         /* stacks overwritten by a preempting thread */
	COUNTER_CHAIN_BROKEN, /* tail call into the unwinder failed */
	COUNTER_NOT_FOLLOWED, /* children of followed processes for which there was no room */
	COUNTER_NOT_HELD,     /* libraries that a process of the command loaded and went on with, since nobody could be told */
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
