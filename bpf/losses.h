/* SPDX-License-Identifier: GPL-2.0-only */
/* Losses by process, and the creation of its share. */
#ifndef VRAMPROF_LOSSES_H
#define VRAMPROF_LOSSES_H

#include "counters.h"
#include "helpers.h"
#include "shares.h"

MAP(blank_share, BPF_MAP_TYPE_ARRAY, u32, struct share, 1);

// Like find_share, but creates a missing share. Called for a process's first call. If it returns
// NULL, it sets error.
static EBPF_INLINE struct share *share_of(u64 id, long *error)
{
	u32 pid = id >> 32, zero = 0;
	struct share *share = bpf_map_lookup_elem(&shares, &pid);
	if (share)
		return share;
	struct share *blank = bpf_map_lookup_elem(&blank_share, &zero);
	if (!blank)
		return NULL;
	*error = bpf_map_update_elem(&shares, &pid, blank, BPF_NOEXIST);
	return bpf_map_lookup_elem(&shares, &pid);
}

static EBPF_INLINE void lose_of(u64 id)
{
	struct share *share = find_share(id);
	if (share)
		__sync_fetch_and_add(&share->lost, 1);
}

// Counts a loss, in total and for its process.
static EBPF_INLINE void lose(enum counter counter, u64 id)
{
	count(counter);
	lose_of(id);
}

// Counts a call or report without the entry that it needs. error is that of the map: -E2BIG if the
// map, or the share of the process in it, is full.
static EBPF_INLINE void lose_entry(long error, u64 id)
{
	lose(error == -E2BIG ? COUNTER_TABLE_FULL : COUNTER_NO_MEMORY, id);
}

#endif
