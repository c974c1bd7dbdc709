/* SPDX-License-Identifier: GPL-2.0-only */
/* The unwinder's inline functions, whose reads of the traced process's memory are recorded. */
#ifndef VRAMPROF_UNWINDER_FUNCTIONS_H
#define VRAMPROF_UNWINDER_FUNCTIONS_H

#include "unwinder_maps.h"
#include "walk_recording.h"
#ifdef FIND_CODE
#include "find_code.h"
#endif

/* Stand-ins for maps and variables that only these functions use. */
BORROWED(py_procs, BPF_MAP_TYPE_ARRAY);
BORROWED(interpreter_offsets, BPF_MAP_TYPE_ARRAY);
BPF_RODATA_VAR(u32, with_debug_output, 0)
BPF_RODATA_VAR(u64, inverse_pac_mask, 0)
BPF_RODATA_VAR(u64, tpbase_offset, 0)

#ifdef FIND_CODE
#define bpf_map_lookup_elem(map, key) \
	(__builtin_strcmp(#map, "&pid_page_to_mapping_info") ? bpf_map_lookup_elem(map, key) : mapping_at((void *)(key)))
#define FINDS_CODE 1
#else
#define FINDS_CODE 0
#endif
#define bpf_probe_read_user watched_read
#include "tracemgmt.h"
extern u64 tpbase_offset;
#include "tsd.h"
#undef bpf_probe_read_user
#undef bpf_map_lookup_elem
#include "next_unwinder.h"

#endif
