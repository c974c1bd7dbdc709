/* SPDX-License-Identifier: GPL-2.0-only */
/* The unwinder's headers, under clang's BPF target, and our wire format on its types. */
#ifndef VRAMPROF_UNWINDER_H
#define VRAMPROF_UNWINDER_H

#if defined(__TARGET_ARCH_x86)
#define __x86_64__ 1
#define __x86_64 1
#elif defined(__TARGET_ARCH_arm64)
#define __aarch64__ 1
#endif

// clang-format off: order matters
#include "bpfdefs.h"
#include "kernel.h"
#include "types.h"
// clang-format on

typedef u64 __u64;
typedef u32 __u32;
typedef s32 __s32;
typedef u16 __u16;
typedef u8 __u8;
typedef s16 __s16;
#include "event.h"

/* Stand-ins for the unwinder's maps: replaced by the real ones on loading. */
#define BORROWED(name, map_type)                                                                                       \
	struct name##_t {                                                                                              \
		__uint(type, map_type);                                                                                \
		__uint(key_size, 4);                                                                                   \
		__uint(value_size, 4);                                                                                 \
		__uint(max_entries, 1);                                                                                \
	} name SEC(".maps")

#define MAP(name, map_type, key_type, value_type, entries)                                                             \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} name SEC(".maps")

/* It takes its memory as it fills, where the kernel can. */
#define GROWING_MAP(name, key_type, value_type, entries)                                                               \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_HASH);                                                                       \
		__uint(map_flags, BPF_F_NO_PREALLOC);                                                                  \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
		__uint(max_entries, entries);                                                                          \
	} name SEC(".maps")

BORROWED(per_cpu_records, BPF_MAP_TYPE_PERCPU_ARRAY);
BORROWED(pid_page_to_mapping_info, BPF_MAP_TYPE_ARRAY);
BORROWED(metrics, BPF_MAP_TYPE_PERCPU_ARRAY);
BORROWED(perf_progs, BPF_MAP_TYPE_PROG_ARRAY);

#endif
