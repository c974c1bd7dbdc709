//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// The steps of the OpenTelemetry profiler's unwinder for native and Python frames. They are built
// from its sources with four changes: each read of the traced process's memory is recorded
// (walk_recording.h), metrics are omitted, a program walks more native frames per tail call, for
// deeper stacks, and what it does for each frame is verified once (verifier.h).
#include "unwinder_maps.h"
#include "walk_recording.h"
#ifdef FIND_CODE
#include "find_code.h"
#endif

BORROWED(report_events, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
BORROWED(reported_pids, BPF_MAP_TYPE_ARRAY);
BORROWED(pid_events, BPF_MAP_TYPE_ARRAY);
BORROWED(inhibit_events, BPF_MAP_TYPE_ARRAY);
BORROWED(trace_events, BPF_MAP_TYPE_RINGBUF);
BORROWED(go_procs, BPF_MAP_TYPE_ARRAY);

// Record reads; reads into state->fp restore the frame pointer.
#define bpf_probe_read_user(destination, size, source) \
	(__builtin_strcmp(#destination, "&state->fp") ? watched_read(destination, size, source) \
						      : watched_restore((u64 *)(destination), source))

// Looks up a row of the unwind tables, and watches the registers that it names.
static EBPF_INLINE UnwindInfo *watched_info(void *map, void *key)
{
	UnwindInfo *info = bpf_map_lookup_elem(map, key);
	watch_registers(info);
	return info;
}
#ifndef FIND_CODE
#define mapping_at(key) bpf_map_lookup_elem(&pid_page_to_mapping_info, key)
#endif
#define bpf_map_lookup_elem(map, key) \
	(!__builtin_strcmp(#map, "&unwind_info_array") ? (void *)watched_info(map, key) \
	 : !__builtin_strcmp(#map, "&pid_page_to_mapping_info") ? mapping_at((void *)(key)) \
							      : bpf_map_lookup_elem(map, key))
#include "tracemgmt.h"
#define increment_metric(metric)
#include "tsd.h"
#include "native_stack_trace.h"
#include "next_unwinder.h"
#ifdef FIND_CODE
// Walks over a native frame. Returns the error and the next unwinder, as find_next_unwinder does.
VERIFIED_ONCE int walk_frame(void)
{
	bool last = false;
	PerCPURecord *record = get_per_cpu_record();
	if (!record)
		return PROG_UNWIND_STOP;
	ErrorCode error = unwind_one_frame(record, &last);
	return error || last ? error << UNWINDER_BITS | PROG_UNWIND_STOP : next_after_native_frame(record);
}

/* The unwinder looks for the next unwinder, its variable or parameter, right after it walked over a
 * frame. walk_frame does both: calls take time. */
#define unwind_one_frame(record, last) walk_one_frame(last, _Generic(unwinder, int : &unwinder, int * : unwinder))
static EBPF_INLINE ErrorCode walk_one_frame(bool *last, int *unwinder)
{
	*last = false;
	return split_next(walk_frame(), unwinder);
}
#undef get_next_unwinder_after_native_frame
#define get_next_unwinder_after_native_frame(record, unwinder) ERR_OK
#endif

// Pushes a native frame, except that of CPython's loop, which follows the Python frames of the
// loop: its address depends on whether CPython has specialized the instruction. num_kernel_frames,
// which nothing else uses during a walk, is the number of words up to the last Python frame, one
// less behind the loop.
static EBPF_INLINE ErrorCode push_native_frame(UnwindState *state, Trace *trace, u64 file, u64 line, bool return_address)
{
	bool loop = trace->num_kernel_frames && trace->num_kernel_frames == trace->frame_data_len;
	ErrorCode error = push_native(state, trace, file, line, return_address);
	if (error)
		return error;
	trace->num_frames -= loop;
	trace->frame_data_len -= loop * 2;
	trace->num_kernel_frames -= loop; // the next native frame is not the loop's
	return ERR_OK;
}
#define push_native push_native_frame
#undef NATIVE_FRAMES_PER_PROGRAM
// At most 29 programs run in a row. More frames per program exceed the limit of older verifiers.
#ifdef FIND_CODE
#define NATIVE_FRAMES_PER_PROGRAM 32
#else
#define NATIVE_FRAMES_PER_PROGRAM 8
#endif
#include "native_stack_trace.ebpf.c"

/* Of a code object, as the tracer for Python computes it: the code's flags are CO_OPTIMIZED, and
 * perhaps flags above bit 21, and all else is 0. From CPython 3.14 on, bit 0 of the address in a frame
 * is set if the object is never freed: the tracer reads it one byte too far. */
#define INTERPRETERS_CODE 0x400
#define INTERPRETERS_CODE_TAGGED 0x8000000
#define CODE_FLAGS 48 /* offset of co_flags, from CPython 3.11 on; before, a part of a pointer */
#define CO_OPTIMIZED 1
#define CO_NEWLOCALS 2

/* Native frames between two Python frames that may be the interpreter's. */
#define MAX_OWN_FRAMES 12

// Drops the native frames that end the trace, down to the last Python frame, if they are of the
// file of the interpreter, in whose code the walk is. They depend on whether CPython has
// specialized the call.
static EBPF_INLINE void drop_interpreters_frames(UnwindState *state, Trace *trace)
{
	const u32 words = sizeof(trace->frame_data) / sizeof(trace->frame_data[0]);
	u16 *python = &trace->num_kernel_frames;
#pragma unroll 1
	for (int i = 0; i < MAX_OWN_FRAMES; i++) {
		u32 last = *(volatile u16 *)&trace->frame_data_len - 1;
		if (!*(volatile u16 *)python || last <= *(volatile u16 *)python || last >= words || trace->frame_data[last] != state->text_section_id)
			break;
		trace->frame_data_len -= 2;
		trace->num_frames--;
	}
}

// Pushes a Python frame, and takes it back if it is the interpreter's own. Where a line calls a
// class, CPython 3.12 and later push a frame below that of __init__, but only after they have
// specialized the line. The code of that frame has no first line, and is no function's: those have
// CO_NEWLOCALS.
static EBPF_INLINE u64 *push_users_frame(UnwindState *state, Trace *trace, u8 type, u8 flags, u8 words, u64 address, u64 code)
{
	PerCPURecord *record = (void *)state - __builtin_offsetof(PerCPURecord, state);
	bool tag = address & 1;
	volatile u8 *at = &record->pythonUnwindScratch.code[CODE_FLAGS]; // two loads: the verifier knows the address of each
	u8 code_flags = at[0], tagged_flags = at[-1];
	code_flags = tag ? tagged_flags : code_flags;
	drop_interpreters_frames(state, trace);
	u64 *frame = push_frame(state, trace, type, flags, 0, words);
	if (!frame)
		return NULL;
	bool own = (u32)code == (tag ? INTERPRETERS_CODE_TAGGED : INTERPRETERS_CODE) & (code_flags & (CO_OPTIMIZED | CO_NEWLOCALS)) == CO_OPTIMIZED;
	trace->num_frames -= own;
	trace->frame_data_len -= own * (words + 1);
	trace->num_kernel_frames = trace->frame_data_len;
	return frame;
}

#undef bpf_map_lookup_elem
#undef bpf_probe_read_user
#undef bpf_probe_read_user_with_test_fault
#define bpf_probe_read_user(destination, size, source) watched_python_read(pyinfo, destination, size, source)
#define bpf_probe_read_user_with_test_fault bpf_probe_read_user
#define push_frame(state, trace, type, flags, data, words) push_users_frame(state, trace, type, flags, words, file, line)
#include "python_tracer.ebpf.c"

// The unwinder's maps use this type only through pointers. The variable brings all of it into BTF.
volatile const StackDelta table_row;

char _license[] SEC("license") = "GPL";
