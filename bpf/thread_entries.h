/* SPDX-License-Identifier: GPL-2.0-only */
/* Creates the entries of threads, within the shares of their processes. */
#ifndef VRAMPROF_THREAD_ENTRIES_H
#define VRAMPROF_THREAD_ENTRIES_H

#include "losses.h"
#include "threads.h"

/* Entries of the map threads. User space sets it. */
volatile const u64 max_threads = MAX_THREADS;
MAP(blank_thread, BPF_MAP_TYPE_ARRAY, u32, struct thread, 1);

// Finds or creates the entry of the current thread.
static EBPF_INLINE struct thread *this_thread(u64 id)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &id);
	if (thread)
		return thread;
	int zero = 0;
	struct thread *blank = bpf_map_lookup_elem(&blank_thread, &zero);
	if (!blank)
		return NULL;
	u64 *used = find_table(TABLE_THREADS);
	long error = -E2BIG;
	struct share *share = share_of(id, &error);
	if (used && share && (s64)share->threads <= (s64)(max_threads - *used))
		error = bpf_map_update_elem(&threads, &id, blank, BPF_NOEXIST);
	if (error || !used || !share) {
		lose_entry(error, id);
		return NULL;
	}
	__sync_fetch_and_add(used, 1);
	__sync_fetch_and_add(&share->threads, 1);
	return bpf_map_lookup_elem(&threads, &id);
}

#endif
