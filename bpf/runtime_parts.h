/* SPDX-License-Identifier: GPL-2.0-only */
/* Finds wrappers in stacks. */
#ifndef VRAMPROF_RUNTIME_PARTS_H
#define VRAMPROF_RUNTIME_PARTS_H

#include "map_macros.h"
#include "threads.h"
#include "unwinder_functions.h"
#include "wrappers.h"

/* Innermost frames of a stack among which a wrapper is looked for. */
#define MAX_WRAPPER_FRAMES 12

/* A part of a runtime's file: a range of addresses, as the prefix that they share. */
struct runtime_prefix {
	u32 bits; /* of what follows */
	u64 file; /* the unwinder's id */
	u64 address; /* in the file, big-endian */
} __attribute__((packed));

struct runtime_part {
	u64 entry;    /* address of the wrapper's probe in the file */
	u32 function; /* the wrapper's id + 1; 0: other code */
	u32 unnamed;  /* in a library: the wrapper that counts as alone the calls that were not found */
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct runtime_prefix);
	__type(value, struct runtime_part);
	__uint(max_entries, 1 << 14);
} runtime_parts SEC(".maps");

// Looks for the outermost wrapper in the stack of a driver call, below the driver's own frame. Code
// of another library may be between them: one that limits memory, or UCX, which patches the driver.
// If there is a wrapper, the stack becomes that of the wrapper's entry, so that it does not matter
// which of them was probed: num_kernel_frames, which nothing else uses, is the number of words
// before it. In memory: the verifier does not track it.
static EBPF_INLINE void cut_to_wrapper(struct thread *thread, Trace *trace, bool memory)
{
	u32 unnamed = 0;
#pragma unroll
	for (u32 i = 2; i <= 2 * MAX_WRAPPER_FRAMES; i += 2) {
		if (i >= trace->frame_data_len)
			break;
		u64 head = trace->frame_data[i];
		if (head >> 60 != FRAME_MARKER_NATIVE || (head >> 52 & 15) != 2)
			break;
		u64 address = head & ((1ull << 52) - 1);
		if (head >> 56 & FRAME_FLAG_RETURN_ADDRESS)
			address--;
		struct runtime_prefix key = {128, trace->frame_data[i + 1], __builtin_bswap64(address)};
		struct runtime_part *part = bpf_map_lookup_elem(&runtime_parts, &key);
		if (!part)
			continue;
		unnamed = part->unnamed;
		if (part->function) {
			trace->num_kernel_frames = i;
			thread->api = part->function - 1;
			trace->frame_data[i] = frame_header(FRAME_MARKER_NATIVE, 0, 2, part->entry);
		}
	}
	struct wrapper *wrapper = memory && !*(volatile u16 *)&trace->num_kernel_frames ? find_wrapper(unnamed) : NULL;
	if (wrapper)
		__sync_fetch_and_add(&wrapper->alone, 1);
}

#endif
