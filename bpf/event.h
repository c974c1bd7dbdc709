/* SPDX-License-Identifier: GPL-2.0-only */
/* Events: what the kernel half reports to user space, one struct event per finished call. */
#ifndef VRAMPROF_EVENT_H
#define VRAMPROF_EVENT_H

#include "map_macros.h"

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
#define MAX_ARGUMENTS 8

/* What follows the event of a function whose size, device or origin stands in structures. */
struct details {
	u64 argument[MAX_ARGUMENTS];         /* by position, a structure passed by value left out */
	u8 by_value[BY_VALUE_SIZE]; /* the structure passed by value */
	u8 behind[BEHIND_SIZE];     /* what an argument points to */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
	__type(value, struct event);
} events SEC(".maps");

static EBPF_INLINE void begin_event(struct event *event, enum event_kind kind, u64 id)
{
	event->pid = id >> 32;
	event->tid = (u32)id;
	event->kind = kind;
}

static EBPF_INLINE void fill_note(struct event *event, enum event_kind kind, u64 id)
{
	begin_event(event, kind, id);
	event->time = bpf_ktime_get_ns();
}

#endif
