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
#undef NATIVE_FRAMES_PER_PROGRAM
// At most 29 programs run in a row. More frames per program exceed the limit of older verifiers.
#ifdef FIND_CODE
#define NATIVE_FRAMES_PER_PROGRAM 32
#else
#define NATIVE_FRAMES_PER_PROGRAM 8
#endif
#include "native_stack_trace.ebpf.c"

#undef bpf_map_lookup_elem
#undef bpf_probe_read_user
#undef bpf_probe_read_user_with_test_fault
#define bpf_probe_read_user(destination, size, source) watched_python_read(pyinfo, destination, size, source)
#define bpf_probe_read_user_with_test_fault bpf_probe_read_user
#include "python_tracer.ebpf.c"

// The unwinder's maps use this type only through pointers. The variable brings all of it into BTF.
volatile const StackDelta table_row;

char _license[] SEC("license") = "GPL";
