/* SPDX-License-Identifier: GPL-2.0-only */
/* Which processes are traced. */
#ifndef VRAMPROF_FILTER_H
#define VRAMPROF_FILTER_H

#include "processes.h"

/* No filter is set: every process is traced. */
volatile const bool trace_all = true;

// A process without an entry is traced only when no filter is set.
static EBPF_INLINE bool is_traced(struct process *process) { return process ? process->traced : trace_all; }

#endif
