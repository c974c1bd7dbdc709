/* SPDX-License-Identifier: GPL-2.0-only */
/* Size classes of blocks: four per doubling, from 512 bytes on. */
#ifndef VRAMPROF_SIZE_CLASSES_H
#define VRAMPROF_SIZE_CLASSES_H

#include "unwinder_defs.h"

enum size_class_count { SIZE_CLASSES = 128 }; /* a power of two: indexes are masked with it */

/* Blocks of one size class that were allocated since the attach. */
struct size_class {
	u64 allocs, alloc_bytes;
	u64 frees, free_bytes;
};

/* How a size class is sampled, see block_sampling.h. */
struct class_samples {
	u32 window;   /* the latest in which a block was reported */
	u16 taken;    /* samples in it */
	u16 halvings; /* of its probability */
};

static EBPF_INLINE u32 size_class(u64 size)
{
	u32 log = 0;
	u64 rest = size >> 9;
	if (!rest)
		return 0;
	// No branches: the verifier would visit all that follows once per path.
#pragma unroll
	for (int bit = 5; bit >= 0; bit--) {
		u64 high = rest >> (1 << bit), minus = -high;
		asm volatile("" : "+r"(minus));
		u32 shift = (high | minus) >> 63 << bit;
		rest >>= shift;
		log += shift;
	}
	u32 number = 1 + 4 * log + (size >> (log + 7) & 3);
	return number < SIZE_CLASSES ? number : SIZE_CLASSES - 1;
}

#endif
