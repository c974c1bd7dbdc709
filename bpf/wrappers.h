/* SPDX-License-Identifier: GPL-2.0-only */
/* Wrappers: runtime functions that call the driver function that reports the same. While all calls
 * of a wrapper do, its probes cost without use: user space detaches them. A driver call then finds
 * the wrapper in its own stack. */
#ifndef VRAMPROF_WRAPPERS_H
#define VRAMPROF_WRAPPERS_H

#include "map_macros.h"
#include "threads.h"

enum wrapper_limit {
	MAX_WRAPPERS = 4096,
	/* In a cookie, the wrapper follows the function. */
	COOKIE_FUNCTION = 0xffff,
	WRAPPER_SHIFT = 16,
};

/* A runtime function in one file. */
struct wrapper {
	u64 inside;  /* successful calls with a driver call of the same role inside */
	u64 alone;   /* successful calls without one, or that no stack shows */
	u64 retired; /* last time its probes were detached, ns of CLOCK_MONOTONIC; 0: never */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space reads the counts and writes retired */
	__type(key, u32);
	__type(value, struct wrapper);
	__uint(max_entries, MAX_WRAPPERS);
} wrappers SEC(".maps");

static EBPF_INLINE struct wrapper *find_wrapper(u32 number)
{
	return number ? bpf_map_lookup_elem(&wrappers, &number) : NULL; /* 0: none */
}

static EBPF_INLINE void note_wrapped(struct call *call, bool inside)
{
	struct wrapper *wrapper = find_wrapper(call->wrapper);
	if (wrapper)
		__sync_fetch_and_add(inside ? &wrapper->inside : &wrapper->alone, 1);
}

// Reports whether the return of an open call could not be seen: it was entered before the return
// probe was detached.
static EBPF_INLINE bool was_retired(struct call *call)
{
	struct wrapper *wrapper = find_wrapper(call->wrapper);
	return wrapper && wrapper->retired > call->time;
}

#endif
