/* SPDX-License-Identifier: GPL-2.0-only */
/* Replaces get_next_unwinder_after_native_frame, where that helps the verifier. */
#ifndef VRAMPROF_NEXT_UNWINDER_H
#define VRAMPROF_NEXT_UNWINDER_H

#include "tracemgmt.h"
#include "verifier.h"

#ifdef FIND_CODE
#define UNWINDER_BITS 8
// Returns the unwinder of the next frame and, above UNWINDER_BITS, the error.
static EBPF_INLINE int next_after_native_frame(PerCPURecord *record)
{
	int unwinder = PROG_UNWIND_STOP;
	ErrorCode error = get_next_unwinder_after_native_frame(record, &unwinder);
	return error << UNWINDER_BITS | unwinder;
}

static EBPF_INLINE ErrorCode split_next(int next, int *unwinder)
{
	*unwinder = next & ((1 << UNWINDER_BITS) - 1);
	return next >> UNWINDER_BITS;
}

VERIFIED_ONCE int find_next_unwinder(void)
{
	PerCPURecord *record = get_per_cpu_record();
	return record ? next_after_native_frame(record) : PROG_UNWIND_STOP;
}
#define get_next_unwinder_after_native_frame(record, unwinder) split_next(find_next_unwinder(), unwinder)
#endif

#endif
