/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads: their open calls, and their current context and device. */
#ifndef VRAMPROF_THREADS_H
#define VRAMPROF_THREADS_H

#include "event.h"
#include "map_macros.h"

#define MAX_DEPTH 4 /* a power of two: indexes are masked with it */
#define MAX_PUSHED 4 /* a power of two, for the same reason */
#define MAX_THREADS 32768

/* A call: a traced function that was entered and has not returned. */
struct call {
	u64 sp; /* stack pointer on entry; identifies the call */
	u64 time;
	u64 argument[MAX_ARGUMENTS];
	u16 inner_calls; /* calls inside it that returned and report the same, see note_inner */
	u16 inner_successes;
	u16 wrapper; /* its index in wrappers; 0: none */
	u8 function;
	u8 role;
};

/* One report of an allocator to PyTorch's profiler. */
struct block_report {
	u64 time;
	u64 address;
	s64 size; /* bytes; negative: freed */
	u64 allocated, reserved;
	u64 live; /* see struct tensor_device */
	u16 device; /* c10::Device: the type in the low byte, the index in the high byte */
	u8 kind;    /* enum event_kind of the event to send; 0: none */
	u8 totals;  /* allocated, reserved and live are valid */
	u32 halvings; /* see struct event */
};

/* The current walk is for a driver object. Its defects are not counted: the object's stack shows
 * them. */
#define UNCOUNTED 0x100

/* A thread: its open calls, outermost first, and its current context and device. */
struct thread {
	u64 stack; /* hash of the outermost call's stack */
	u64 tag;   /* of the current walk: the time of its call */
	/* Context switches when the current walk began inside another; 0: it did not. */
	u64 switches;
	u64 walk;  /* key under which to remember the current walk; 0: none */
	/* Time of the first allocation without a device since the current device last changed;
	 * 0: none. */
	u64 unplaced_since;
	/* Return address, stack pointer and frame pointer of the outermost call's caller, if the
	 * outermost call takes no stack; 0: unknown. */
	u64 caller, caller_sp, caller_fp;
	u32 flags; /* of enum event_flag, and UNCOUNTED */
	u32 depth;
	u64 context;        /* current CUcontext; 0: none or unknown */
	u16 device;         /* its ordinal + 1; 0: unknown */
	u16 runtime_device; /* ordinal + 1 of the last cudaSetDevice; 0: unknown */
	u16 pushed;         /* contexts in below */
	u16 pushed_lost;    /* contexts pushed while below was full */
	u64 below[MAX_PUSHED]; /* contexts below the current one, lowest first */
	struct block_report report; /* waits for its stack */
	u32 refused; /* do not send the current walk's stack; see is_stack_refused */
	u16 by_value_valid;
	u16 api; /* function id of the outermost call, or of the wrapper around it */
	u8 by_value[BY_VALUE_SIZE]; /* structure passed by value to the open call */
	struct call calls[MAX_DEPTH];
};

GROWING_MAP(threads, u64, struct thread, MAX_THREADS); /* pid_tgid → open calls */

#endif
