/* SPDX-License-Identifier: GPL-2.0-only */
/* The calls that a thread has open. */
#ifndef VRAMPROF_CALLS_H
#define VRAMPROF_CALLS_H

#define MAX_DEPTH 4 /* a power of two: indexes are masked with it */
#define MAX_THREADS 32768

enum role { ROLE_ALLOC = 1, ROLE_FREE, ROLE_INIT };
enum layer { LAYER_RUNTIME, LAYER_DRIVER };

/* The attach cookie of a probe; written by tracer.Function.cookie. */
struct cookie {
	u16 function; /* function id: row of the probe table */
	u8 role;
	u8 layer;
	u8 size;    /* position of the size argument from 1, 0 without one */
	u8 pointer; /* allocations: where the address is stored; frees: the address */
	u16 unused;
};

/* A traced function that was entered and has not returned. */
struct call {
	u64 sp; /* on entry: names the call */
	u64 time;
	u64 size;
	u64 pointer;
	struct cookie cookie;
	u32 driver_calls;  /* driver calls of its kind that returned inside it */
	u32 driver_allocs; /* of those: successful allocations, already booked */
};

/* The open calls of a thread, outermost first. */
struct thread {
	u64 stack; /* hash of the outermost call's stack */
	u64 walk;  /* where to remember the walk under way, 0: nowhere */
	enum event_flag flags;
	u32 depth;
	struct call calls[MAX_DEPTH];
};

#endif
