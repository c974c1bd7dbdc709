/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel half tells user space: one struct event per finished call. */
#ifndef VRAMPROF_EVENT_H
#define VRAMPROF_EVENT_H

#include "unwinder_defs.h"

enum event_kind {
	EVENT_ALLOC = 1,    /* an allocation returned success */
	EVENT_ALLOC_FAILED, /* the outermost call returned an error */
	EVENT_FREE,         /* a free was entered */
	EVENT_FREE_FAILED,  /* the thread's last free returned an error */
	EVENT_CALL,         /* another traced call returned success */
	EVENT_INIT,         /* cuInit was entered */
	EVENT_TABLES,       /* a stack was truncated for want of unwind tables */
	EVENT_HELD,         /* a library was loaded; the process stands still */
	EVENT_EXEC,
	EVENT_EXIT,
	EVENT_ALLOCATOR,    /* the first report of an allocator: its totals before it */
	EVENT_BLOCK,        /* a sampled block was given out; context and extra: bytes allocated and reserved then */
	EVENT_BLOCK_FREE,   /* and taken back; size: bytes of the blocks that live since the attach */
	EVENT_BLOCK_FAILED, /* the allocator gives up: out of memory */
	EVENT_TOTALS,       /* an allocator's totals changed; fields as of EVENT_BLOCK_FREE */
	EVENT_LEARNED,      /* what was current in the thread since the time address; size: contexts that it has pushed since the attach */
};

/* What is amiss with an event. */
enum event_flag {
	FLAG_NO_TABLES = 1, /* the process was not known to the unwinder */
	FLAG_TORN = 2,      /* another thread overwrote the unwinder's record */
	FLAG_TRUNCATED = 4, /* the stack was not walked to its end */
	FLAG_NO_DETAILS = 8, /* a structure could not be read: the details are not valid */
	FLAG_TOTALS = 16, /* of a block: the allocator's totals after it are valid; without any of its own, allocated is what lives since the attach */
	FLAG_CAPTURED = 32, /* the call's stream is captured into a graph */
	FLAG_BESIDE_CAPTURE = 64, /* another stream of the process is: the call's may have joined that capture */
};

struct event {
	u64 time;    /* ns of CLOCK_MONOTONIC: return of the call, entry of a free */
	u64 address; /* or handle */
	u64 size;
	u64 stack;   /* hash of the outermost call's stack, 0 without one */
	u64 context; /* the thread's current CUcontext, 0: unknown */
	u64 extra;   /* another argument: handle, pool, device */
	u32 pid;     /* tgid in the initial pid namespace */
	u32 tid;
	s16 result;  /* CUresult or cudaError_t; of blocks: c10::DeviceType, 1 is CUDA */
	s16 device;  /* CUDA ordinal that is current in the thread, or of the block; -1: unknown */
	u8 flags;    /* of enum event_flag */
	u8 kind;     /* of enum event_kind */
	u8 api;      /* function id of the outermost call */
	union {
		u8 function; /* id of the call that is booked */
		u8 halvings; /* of EVENT_BLOCK: of its class's probability to be sampled */
	};
};
_Static_assert(sizeof(struct event) == 64, "an event is one cache line");

#define BY_VALUE_SIZE 64
#define BEHIND_SIZE 136

/* What follows the event of a function whose size, device or origin stands in structures. */
struct details {
	u64 argument[8];           /* by position, a structure passed by value left out */
	u8 by_value[BY_VALUE_SIZE]; /* the structure passed by value */
	u8 behind[BEHIND_SIZE];     /* what an argument points to */
};

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

/* A process the tracer follows; key is the tgid. */
struct process {
	u64 seed;   /* differs between processes that reuse a pid; part of each stack's hash */
	u32 traced; /* 0: known, but filtered out */
	u32 held;   /* stop it when it loads a library, so that no call is missed */
	u32 jit;    /* it writes a perf map file: code in no file is a compiler's, with frame pointers */
	u32 generation; /* counts the changes of its mappings */
	u32 layout; /* names its mappings in the unwinder's maps; 0: they are not known */
	u32 inherited; /* entered at a fork from its parent's: user space does not know of it */
};

#endif
