/* SPDX-License-Identifier: GPL-2.0-only */
/* The traced functions, and the calls that a thread has open. */
#ifndef VRAMPROF_CALLS_H
#define VRAMPROF_CALLS_H

#include "event.h"

#define MAX_DEPTH 4 /* a power of two: indexes are masked with it */
#define MAX_PUSHED 4 /* likewise */
#define MAX_THREADS 32768
#define MAX_FUNCTIONS 256
#define MAX_ARGUMENTS 8

enum role {
	ROLE_ALLOC = 1, /* its stack is taken; an event on return */
	ROLE_FREE,      /* an event on entry, another one if it fails */
	ROLE_CALL,      /* an event on return, if it succeeds; its stack is taken where its entry runs alloc_enter */
	ROLE_QUIET,     /* none: it has an effect only */
	ROLE_INIT,
};
enum layer { LAYER_RUNTIME, LAYER_DRIVER };

/* What a successful call does to the thread's current context and device. */
enum effect {
	EFFECT_NONE,
	EFFECT_SET_CONTEXT,  /* address is current */
	EFFECT_PUSH_CONTEXT,
	EFFECT_POP_CONTEXT,
	EFFECT_CREATE_CONTEXT,  /* address is a context of device extra, and pushed */
	EFFECT_RETAIN_CONTEXT,  /* address is a context of device extra */
	EFFECT_DESTROY_CONTEXT, /* address is gone; popped if it was current */
	EFFECT_SET_DEVICE,      /* extra is current */
	EFFECT_LEARN_CONTEXT,   /* address was current all the time */
	EFFECT_LEARN_DEVICE,    /* the device address was */
	EFFECT_DERIVE_CONTEXT,  /* address is a context of the device of context extra */
	EFFECT_BEGIN_CAPTURE,   /* stream address is captured */
	EFFECT_END_CAPTURE,     /* stream address is captured no longer, whatever the result */
};

/* A row of the probe table; written by tracer.Function.row. Positions of arguments count from 1, without a structure
 * that is passed by value; 0: there is none. */
struct function {
	u8 role;
	u8 layer;
	u8 effect;
	u8 size;
	u8 address;        /* the address, or where it is stored */
	u8 address_width;  /* bytes that are stored there: 4 or 8; 0: the argument is the address */
	u8 address_offset; /* behind the argument */
	u8 extra;
	u8 details;        /* struct details follows the event */
	u8 by_value;       /* position of the structure passed by value on arm64, where it is a pointer */
	u8 by_value_size;  /* bytes, at most BY_VALUE_SIZE; on x86-64 they lie on the stack */
	u8 behind;         /* argument that points to what is sent */
	u8 behind_offset;
	u8 behind_size;    /* bytes, at most BEHIND_SIZE */
	u8 at_entry;       /* the event bears the time of entry */
	u8 stream;         /* argument: the stream in whose order it allocates */
	u8 object;         /* it makes no memory: its stack is in no count of stacks */
};

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
	u64 astray; /* since when allocations came without a device, as far as one device was current; 0: none did */
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

struct context_key {
	u64 context;
	u64 pid;
};

struct stream_key {
	u64 stream; /* 0: all of the process */
	u64 pid;
};

#endif
