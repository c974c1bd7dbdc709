/* SPDX-License-Identifier: GPL-2.0-only */
/* Streams that are being captured into graphs. */
#ifndef VRAMPROF_CAPTURES_H
#define VRAMPROF_CAPTURES_H

#include "event.h"
#include "losses.h"
#include "map_macros.h"

struct stream_key {
	u64 stream; /* 0: all streams of the process */
	u64 pid;
};

/* Current captures: stream → 1, and 0 → number of streams being captured. */
MAP(captures, BPF_MAP_TYPE_LRU_HASH, struct stream_key, u64, 4096);

#define MAX_STREAM_NAME 2 /* CU_STREAM_PER_THREAD; higher values are handles */

// Returns the key of a stream. The only streams without a handle that can be captured are per
// thread.
static EBPF_INLINE struct stream_key stream_of(u64 stream, u64 id)
{
	struct stream_key key = {stream > MAX_STREAM_NAME ? stream : 1ull << 63 | (u32)id, id >> 32};
	return key;
}

static EBPF_INLINE u64 *captures_of(u64 id)
{
	struct stream_key key = {0, id >> 32};
	return bpf_map_lookup_elem(&captures, &key);
}

static EBPF_INLINE void begin_capture(u64 stream, u64 id)
{
	struct stream_key key = stream_of(stream, id), all = {0, id >> 32};
	u64 one = 1;
	if (bpf_map_lookup_elem(&captures, &key))
		return;
	u64 *n = captures_of(id);
	if (n && *n >= MAX_CAPTURES_OF_PROCESS) {
		lose(COUNTER_NOT_NOTED, id);
		return;
	}
	bpf_map_update_elem(&captures, &key, &one, BPF_ANY);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(&captures, &all, &one, BPF_ANY);
}

static EBPF_INLINE void end_capture(u64 stream, u64 id)
{
	struct stream_key key = stream_of(stream, id);
	if (bpf_map_delete_elem(&captures, &key))
		return;
	u64 *n = captures_of(id);
	if (n && *n)
		__sync_fetch_and_add(n, -1);
}

// Returns the event flags of an allocation on a stream. On a captured stream it becomes a graph
// node.
static EBPF_INLINE u8 capture_flags(u64 stream, u64 id)
{
	u64 *n = captures_of(id);
	if (!n || !*n)
		return 0;
	struct stream_key key = stream_of(stream, id);
	return bpf_map_lookup_elem(&captures, &key) ? FLAG_CAPTURED : FLAG_BESIDE_CAPTURE;
}

#endif
