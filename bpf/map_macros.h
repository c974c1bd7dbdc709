/* SPDX-License-Identifier: GPL-2.0-only */
/* Macros that define maps. */
#ifndef VRAMPROF_MAP_MACROS_H
#define VRAMPROF_MAP_MACROS_H

#include "unwinder_defs.h"

#define MAP(name, map_type, key_type, value_type, entries)                                                             \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} name SEC(".maps")

/* A hash map that allocates memory as it fills, where the kernel supports that; see
 * bpf.GrowingMaps. */
#define GROWING_MAP(name, key_type, value_type, entries)                                                               \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} name SEC(".maps")

/* A stand-in for one of the unwinder's maps. The loader replaces it with the real one. */
#define BORROWED(name, map_type)                                                                                       \
	struct name##_t {                                                                                              \
		__uint(type, map_type);                                                                                \
		__uint(key_size, 4);                                                                                   \
		__uint(value_size, 4);                                                                                 \
		__uint(max_entries, 1);                                                                                \
	} name SEC(".maps")

#endif
