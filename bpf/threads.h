/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads: their open calls, and what is current in them. */
#ifndef VRAMPROF_THREADS_H
#define VRAMPROF_THREADS_H

#include "event.h"
#include "map_macros.h"

#define MAX_DEPTH 4 /* a power of two: indexes are masked with it */
#define MAX_PUSHED 4 /* likewise */
#define MAX_THREADS 32768

/* A traced function that was entered and has not returned. */
struct call {
	u64 sp; /* on entry: names the call */
	u64 time;
	u64 argument[MAX_ARGUMENTS];
	u32 driver_calls; /* driver calls of its role that returned inside it */
	u16 driver_successes;
	u8 function;
	u8 role;
};

/* What a call of an allocator's reporting functions says. */
struct block_report {
	u64 time;
	u64 address;
	s64 size; /* negative: freed */
	u64 allocated, reserved;
	u64 live; /* see struct tensor_device */
	u16 device; /* c10::Device: its type, and its index above it */
	u8 kind;    /* enum event_kind of what is to be sent, 0: nothing */
	u8 totals;  /* allocated, reserved and live are valid */
	u32 halvings; /* see struct event */
};

/* The walk under way is for a driver object: the object's stack says what is amiss with it. */
#define UNCOUNTED 0x100

/* The open calls of a thread, outermost first, and what is current in it. */
struct thread {
	u64 stack; /* hash of the outermost call's stack */
	u64 tag;   /* of the walk under way: its time */
	u64 switches; /* when the walk under way began, if another one was under way on its CPU, else 0 */
	u64 walk;  /* where to remember the walk under way, 0: nowhere */
	u64 unplaced_since; /* since when allocations came without a device, as far as one device was current; 0: none did */
	u64 caller; /* of the outermost call, if that takes no stack itself: the return address, the stack pointer there */
	u64 caller_sp, caller_fp; /* and the frame pointer; 0: not known */
	u32 flags; /* of enum event_flag, and UNCOUNTED */
	u32 depth;
	u64 context;        /* current CUcontext, 0: none or unknown */
	u16 device;         /* its ordinal + 1, 0: unknown */
	u16 runtime_device; /* of the last cudaSetDevice, likewise */
	u16 pushed;         /* contexts in below */
	u16 pushed_lost;    /* pushed when below was full */
	u64 below[MAX_PUSHED]; /* the current one, lowest first */
	struct block_report report; /* waits for its stack */
	u32 refused; /* the stack of the walk under way, if it is new: see is_stack_refused */
	u32 by_value_valid;
	u8 by_value[BY_VALUE_SIZE]; /* structure passed to the open call */
	struct call calls[MAX_DEPTH];
};

MAP(threads, BPF_MAP_TYPE_HASH, u64, struct thread, MAX_THREADS); /* pid_tgid → open calls */

#endif
