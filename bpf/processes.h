/* SPDX-License-Identifier: GPL-2.0-only */
/* The processes that the tracer follows. */
#ifndef VRAMPROF_PROCESSES_H
#define VRAMPROF_PROCESSES_H

#include "map_macros.h"

/* A process that the tracer follows. */
struct process {
	u64 seed;   /* differs between processes that reuse a pid; part of every stack's hash */
	u32 traced; /* 0: known, but filtered out */
	u32 held;   /* stop it when it loads a library, so that no call is missed */
	/* It writes a perf map file: code in no file was JIT-compiled with frame pointers. */
	u32 jit;
	u32 generation; /* counts changes of its mappings */
	u32 layout; /* number of its mappings in the unwinder's maps; 0: not loaded */
	u32 inherited; /* copied from its parent at the fork; user space does not know it */
};

MAP(processes, BPF_MAP_TYPE_HASH, u32, struct process, 16384); /* tgid */

static EBPF_INLINE struct process *find_process(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&processes, &pid);
}

#endif
