/* SPDX-License-Identifier: GPL-2.0-only */
/* The probe table: what each traced function does, and the positions of its arguments. */
#ifndef VRAMPROF_FUNCTIONS_H
#define VRAMPROF_FUNCTIONS_H

#include "map_macros.h"

enum function_limit { MAX_FUNCTIONS = 256 };

enum role {
	ROLE_ALLOC = 1, /* takes a stack; sends an event on return */
	ROLE_FREE,      /* sends an event on entry, and another one if it fails */
	/* Sends an event on successful return; takes a stack if its entry runs alloc_enter. */
	ROLE_CALL,
	ROLE_QUIET,     /* sends no event: it only has an effect */
	ROLE_INIT,      /* sends an event on entry */
	/* A request to the kernel driver: sends an event for memory of a GPU; see requests.h. */
	ROLE_REQUEST,
};
/* These values are the same in CUresult and cudaError_t. */
enum cuda_result {
	CUDA_OUT_OF_MEMORY = 2,
	CUDA_CAPTURE_WRONG_THREAD = 908,
};

enum layer { LAYER_RUNTIME, LAYER_DRIVER, LAYER_SYSTEM = 3 };

/* Effect of a successful call on the thread's current context and device. "address" and "extra" are
 * the row's operands. */
enum effect {
	EFFECT_NONE,
	EFFECT_SET_CONTEXT,     /* makes address current */
	EFFECT_PUSH_CONTEXT,    /* pushes address */
	EFFECT_POP_CONTEXT,
	EFFECT_CREATE_CONTEXT,  /* creates context address on device extra, and pushes it */
	EFFECT_RETAIN_CONTEXT,  /* returns context address of device extra */
	EFFECT_DESTROY_CONTEXT, /* destroys context address, and pops it if it is current */
	EFFECT_SET_DEVICE,      /* makes device extra current */
	EFFECT_LEARN_CONTEXT,   /* tells that context address is current */
	EFFECT_LEARN_DEVICE,    /* tells that device address is current */
	EFFECT_DERIVE_CONTEXT,  /* creates context address on the device of context extra */
	EFFECT_BEGIN_CAPTURE,   /* begins to capture stream address */
	EFFECT_END_CAPTURE,     /* ends the capture of stream address, whatever the result */
};

/* A row of the probe table; user space writes it. Positions of arguments count from 1, without a
 * structure passed by value; 0: none. */
struct function {
	u8 role;
	u8 layer;
	u8 effect;
	u8 size;
	u8 address;        /* position of the address, or of a pointer to it */
	/* Bytes to read from the pointer: 4 or 8; 0: the argument is the address. */
	u8 address_width;
	u8 address_offset; /* bytes from the pointer to the address */
	u8 extra;
	u8 details;        /* struct details follows the event */
	/* Position of a structure passed by value, which arm64 passes as a pointer. */
	u8 by_value;
	u8 by_value_size;  /* its bytes, at most BY_VALUE_SIZE; x86-64 passes it on the stack */
	u8 behind;         /* position of a pointer to memory that is sent */
	u8 behind_offset;  /* bytes from the pointer to that memory */
	u8 behind_size;    /* its bytes, at most BEHIND_SIZE */
	u8 at_entry;       /* the event has the time of entry, not of return */
	u8 stream;         /* position of the stream that orders the allocation */
	u8 object;         /* it creates a driver object, no memory: its stack is not counted */
};

MAP(functions, BPF_MAP_TYPE_ARRAY, u32, struct function, MAX_FUNCTIONS);
static EBPF_INLINE struct function *find_function(u32 id) { return bpf_map_lookup_elem(&functions, &id); }

#endif
