/* SPDX-License-Identifier: GPL-2.0-only */
/* Stand-ins for the unwinder's maps. */
#ifndef VRAMPROF_UNWINDER_MAPS_H
#define VRAMPROF_UNWINDER_MAPS_H

#include "map_macros.h"

BORROWED(per_cpu_records, BPF_MAP_TYPE_PERCPU_ARRAY);
BORROWED(pid_page_to_mapping_info, BPF_MAP_TYPE_ARRAY);
BORROWED(metrics, BPF_MAP_TYPE_PERCPU_ARRAY);
BORROWED(perf_progs, BPF_MAP_TYPE_PROG_ARRAY);

#endif
