/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel half tells user space: one struct event per finished call. */
#ifndef VRAMPROF_EVENT_H
#define VRAMPROF_EVENT_H

enum event_kind {
	EVENT_ALLOC = 1,    /* an allocation returned success */
	EVENT_ALLOC_FAILED, /* the outermost call returned an error */
	EVENT_FREE,         /* a free was entered */
	EVENT_FREE_FAILED,  /* the thread's last free returned an error */
	EVENT_INIT,         /* cuInit was entered */
	EVENT_TABLES,       /* a stack was truncated for want of unwind tables */
	EVENT_HELD,         /* a library was loaded; the process stands still */
	EVENT_EXEC,
	EVENT_EXIT,
};

/* What is amiss with the stack of an event. */
enum event_flag {
	FLAG_NO_TABLES = 1, /* the process was not known to the unwinder */
	FLAG_TORN = 2,      /* another thread overwrote the unwinder's record */
	FLAG_TRUNCATED = 4, /* the stack was not walked to its end */
};

struct event {
	__u64 time;    /* ns of CLOCK_MONOTONIC: return of an allocation, entry of a free */
	__u64 address;
	__u64 size;
	__u64 stack;   /* hash of the outermost call's stack, 0 without one */
	__u32 pid;     /* tgid in the initial pid namespace */
	__u32 tid;
	__s32 result;  /* CUresult or cudaError_t */
	enum event_flag flags;
	enum event_kind kind;
	__u16 api;      /* function id of the outermost call */
	__u16 function; /* function id of the call that is booked */
	__u64 duration; /* ns from entry to return */
};
_Static_assert(sizeof(struct event) == 64, "an event is one cache line");

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
	COUNTER_COUNT,
};

/* A process the tracer follows; key is the tgid. */
struct process {
	__u64 seed;   /* differs between processes that reuse a pid; part of each stack's hash */
	__u32 traced; /* 0: known, but filtered out */
	__u32 held;   /* stop it when it loads a library, so that no call is missed */
	__u32 jit;    /* it writes a perf map file: code in no file is a compiler's, with frame pointers */
	__u32 generation; /* counts the changes of its mappings */
};

#endif
