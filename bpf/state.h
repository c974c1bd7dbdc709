/* SPDX-License-Identifier: GPL-2.0-only */
/* What the kernel half remembers, and the maps it shares with the unwinder. */
#ifndef VRAMPROF_STATE_H
#define VRAMPROF_STATE_H

#define SIGSTOP 19

#include "calls.h"
#include "event.h"
#include "helpers.h"
#include "map_macros.h"
#include "share.h"

/* Without a filter every process is traced. */
volatile const bool trace_all = true;

/* So many blocks of an allocator are sampled in SAMPLE_WINDOW_NS before it is sampled less; 0: there is no limit. */
volatile const u32 window_samples = 0;

/* User space is told an allocator's totals when they are so many bytes, and a TOTALS_SHAREth, from what it was told last. */
volatile const u64 totals_step = 0;

/* Entries of those maps, bytes of the rings. */
volatile const u64 max_threads = MAX_THREADS;
volatile const u64 max_blocks = 1;
volatile const u64 events_size = 1, stacks_size = 1;

MAP(functions, BPF_MAP_TYPE_ARRAY, u32, struct function, MAX_FUNCTIONS);
MAP(threads, BPF_MAP_TYPE_HASH, u64, struct thread, MAX_THREADS); /* pid_tgid → open calls */
MAP(blank_thread, BPF_MAP_TYPE_ARRAY, u32, struct thread, 1);
MAP(contexts, BPF_MAP_TYPE_LRU_HASH, struct context_key, u32, 16384); /* → ordinal + 1 */
MAP(captures, BPF_MAP_TYPE_LRU_HASH, struct stream_key, u64, 4096); /* → 1, of all streams their number; those captured now */
MAP(processes, BPF_MAP_TYPE_HASH, u32, struct process, 16384); /* tgid */
GROWING_MAP(shares, u32, struct share, 16384); /* tgid */
MAP(blank_share, BPF_MAP_TYPE_ARRAY, u32, struct share, 1);
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* user space takes off what those had that are gone */
	__type(key, u32);
	__type(value, u64);
	__uint(max_entries, TABLE_COUNT);
} tables SEC(".maps"); /* enum table → entries that are used */
MAP(counters, BPF_MAP_TYPE_ARRAY, enum counter, u64, COUNTER_COUNT);
MAP(truncated_stacks, BPF_MAP_TYPE_HASH, u32, u64, 256); /* unwinder's error code → stacks truncated */
MAP(table_requests, BPF_MAP_TYPE_LRU_HASH, u32, u64, 4096); /* tgid → time of the last request */
MAP(stacks, BPF_MAP_TYPE_LRU_HASH, u64, u8, 131072);      /* hashes that user space has */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
	__type(value, struct event);
} events SEC(".maps");

MAP(reader_sleeps, BPF_MAP_TYPE_ARRAY, u32, u32, 1); /* user space looks into the events ring rarely: the next event wakes it */

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 23);
} stack_events SEC(".maps");

/* Waking the reader costs the traced thread more than its event: only what is urgent does, and the first after a while. */
static EBPF_INLINE u64 wakes(bool urgent)
{
	if (urgent)
		return BPF_RB_FORCE_WAKEUP;
	u32 zero = 0;
	u32 *sleeps = bpf_map_lookup_elem(&reader_sleeps, &zero);
	if (!sleeps || !*sleeps)
		return BPF_RB_NO_WAKEUP;
	*sleeps = 0;
	return BPF_RB_FORCE_WAKEUP;
}

#ifdef NO_COOKIES
/* Linux before 5.15 has no attach cookies. There the tracer makes a small program for each probe, which leaves the probe's
 * cookie here and goes on with one of ours; such kernels never preempt uprobe programs. */
MAP(cookie, BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, 1);
static EBPF_INLINE u64 attach_cookie(void *ctx)
{
	u32 zero = 0;
	u64 *value = bpf_map_lookup_elem(&cookie, &zero);
	return value ? *value : ~0ull;
}
#else
#define attach_cookie(ctx) bpf_get_attach_cookie(ctx)
#endif

#endif
