/* SPDX-License-Identifier: GPL-2.0-only */
/* The probe table: what each traced function does, and where its arguments are. */
#ifndef VRAMPROF_FUNCTIONS_H
#define VRAMPROF_FUNCTIONS_H

#include "map_macros.h"

enum function_limit { MAX_FUNCTIONS = 256 };

enum role {
	ROLE_ALLOC = 1, /* its stack is taken; an event on return */
	ROLE_FREE,      /* an event on entry, another one if it fails */
	ROLE_CALL,      /* an event on return, if it succeeds; its stack is taken where its entry runs alloc_enter */
	ROLE_QUIET,     /* none: it has an effect only */
	ROLE_INIT,
};
/* CUresult and cudaError_t have these alike. */
enum cuda_result {
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_CAPTURE_WRONG_THREAD = 908,
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

MAP(functions, BPF_MAP_TYPE_ARRAY, u32, struct function, MAX_FUNCTIONS);
static EBPF_INLINE struct function *find_function(u32 id) { return bpf_map_lookup_elem(&functions, &id); }

#endif
