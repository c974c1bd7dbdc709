/* SPDX-License-Identifier: GPL-2.0-only */
/* Events: what the kernel half sends to user space, one struct event per finished call. */
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
	EVENT_TABLES,       /* a stack was truncated because unwind tables are missing */
	EVENT_HELD,         /* the process loaded a library and is stopped */
	EVENT_EXEC,
	EVENT_EXIT,
	/* Of PyTorch's allocators. context and extra: the allocator's bytes allocated and
	 * reserved. */
	EVENT_ALLOCATOR,    /* its first report; the totals are those before the report */
	EVENT_BLOCK,        /* it handed out a sampled block */
	/* It took a sampled block back; size: live bytes of blocks allocated since the attach. */
	EVENT_BLOCK_FREE,
	EVENT_BLOCK_FAILED, /* it ran out of memory */
	EVENT_TOTALS,       /* its totals changed; size as in EVENT_BLOCK_FREE */
	/* The device was current in the thread since time address. size: contexts pushed since
	 * the attach. */
	EVENT_LEARNED,
	/* Details of PyTorch's blocks, only if they are wanted; see block_details.h. */
	/* Before the event of a block. size: requested bytes, context: stream, extra: private pool. */
	EVENT_BLOCK_DETAILS,
	EVENT_BLOCK_COMPLETED, /* no stream uses the freed block any more */
	/* A block from before the attach was freed; otherwise as EVENT_TOTALS. */
	EVENT_BLOCK_OLDER,
};

/* Flags of an event, mostly defects. */
enum event_flag {
	FLAG_NO_TABLES = 1, /* the process was not known to the unwinder */
	FLAG_TORN = 2,      /* another thread overwrote the unwinder's per-CPU record */
	FLAG_TRUNCATED = 4, /* the walk ended before the end of the stack */
	FLAG_NO_DETAILS = 8, /* reading a structure failed: the details are invalid */
	/* The allocator's totals after this block's event are valid. An allocator that reports
	 * no totals has its live bytes since the attach in allocated. */
	FLAG_TOTALS = 16,
	FLAG_CAPTURED = 32, /* the call's stream is being captured into a graph */
	/* Another stream of the process is being captured: the call's stream may have joined
	 * that capture. */
	FLAG_BESIDE_CAPTURE = 64,
	/* Of EVENT_BLOCK_FREE and EVENT_BLOCK_OLDER: other streams use the block, whose memory waits
	 * for them. FLAG_NO_DETAILS: that is not known, or its end will not be seen. */
	FLAG_WAITS = 128,
};

struct event {
	u64 time;    /* ns of CLOCK_MONOTONIC: return of the call, entry of a free */
	u64 address; /* or a handle */
	u64 size;
	u64 stack;   /* hash of the outermost call's stack; 0: none */
	u64 context; /* the thread's current CUcontext; 0: unknown */
	u64 extra;   /* another argument: handle, pool, device */
	u32 pid;     /* tgid in the initial pid namespace */
	u32 tid;
	s16 result;  /* CUresult or cudaError_t; of blocks: enum device_type */
	s16 device;  /* CUDA ordinal that is current in the thread, or the block's; -1: unknown */
	u8 flags;    /* of enum event_flag */
	u8 kind;     /* of enum event_kind */
	u8 api;      /* function id of the outermost call */
	union {
		u8 function; /* function id of the call that the event is about */
		u8 halvings; /* of EVENT_BLOCK: how often its sampling probability was halved */
	};
};
_Static_assert(sizeof(struct event) == 64, "an event is one cache line");

#define BY_VALUE_SIZE 64
#define BEHIND_SIZE 136
#define MAX_ARGUMENTS 8 /* a power of two: indexes are masked with it */

/* Follows the event of a function whose size, device or origin is stored in structures. */
struct details {
	u64 argument[MAX_ARGUMENTS]; /* by position, without a structure passed by value */
	u8 by_value[BY_VALUE_SIZE];  /* the structure passed by value */
	u8 behind[BEHIND_SIZE];      /* memory that an argument points to */
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
