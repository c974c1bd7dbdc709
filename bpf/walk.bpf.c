//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only
//
// The steps of the OpenTelemetry profiler's unwinder for native and Python frames, built from its own sources
// with three changes: each read of the traced process's memory is noted (memo.h), its metrics are left
// out, and a program walks more native frames before it calls the next, which makes deeper stacks possible.
#include "unwinder.h"
#include "memo.h"

BORROWED(report_events, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
BORROWED(reported_pids, BPF_MAP_TYPE_ARRAY);
BORROWED(pid_events, BPF_MAP_TYPE_ARRAY);
BORROWED(inhibit_events, BPF_MAP_TYPE_ARRAY);
BORROWED(trace_events, BPF_MAP_TYPE_RINGBUF);
BORROWED(go_procs, BPF_MAP_TYPE_ARRAY);

#define bpf_probe_read_user watched_read
#include "tracemgmt.h"
#define increment_metric(metric)
#include "tsd.h"
#include "native_stack_trace.h"
#undef NATIVE_FRAMES_PER_PROGRAM
#define NATIVE_FRAMES_PER_PROGRAM 8 // times 29 programs in a row; more takes the verifier to its limit
#include "native_stack_trace.ebpf.c"

#undef bpf_probe_read_user
#undef bpf_probe_read_user_with_test_fault
#define bpf_probe_read_user(destination, size, source) watched_python_read(pyinfo, destination, size, source)
#define bpf_probe_read_user_with_test_fault bpf_probe_read_user
#include "python_tracer.ebpf.c"

// The maps of tables name this type only behind pointers; a variable brings it into BTF whole.
volatile const StackDelta table_row;

char _license[] SEC("license") = "GPL";
