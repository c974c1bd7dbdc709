/* SPDX-License-Identifier: GPL-2.0-only */
/* The processes that the tracer follows. */
#ifndef VRAMPROF_PROCESSES_H
#define VRAMPROF_PROCESSES_H

#include "map_macros.h"

/* A process the tracer follows; key is the tgid. */
struct process {
	u64 seed;   /* differs between processes that reuse a pid; part of each stack's hash */
	u32 traced; /* 0: known, but filtered out */
	u32 held;   /* stop it when it loads a library, so that no call is missed */
	u32 jit;    /* it writes a perf map file: code in no file is a compiler's, with frame pointers */
	u32 generation; /* counts the changes of its mappings */
	u32 layout; /* names its mappings in the unwinder's maps; 0: they are not known */
	u32 inherited; /* entered at a fork from its parent's: user space does not know of it */
};

MAP(processes, BPF_MAP_TYPE_HASH, u32, struct process, 16384); /* tgid */

static EBPF_INLINE struct process *find_process(u64 id)
{
	u32 pid = id >> 32;
	return bpf_map_lookup_elem(&processes, &pid);
}

#endif
