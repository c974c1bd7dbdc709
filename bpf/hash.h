/* SPDX-License-Identifier: GPL-2.0-only */
/* A fast hash of 64-bit words. */
#ifndef VRAMPROF_HASH_H
#define VRAMPROF_HASH_H

#include "unwinder_defs.h"

#define HASH_FACTOR 0x9E3779B97F4A7C15ull

// Adds a word to a hash.
static EBPF_INLINE u64 mix(u64 hash, u64 value)
{
	hash = (hash ^ value) * HASH_FACTOR;
	return hash ^ hash >> 29;
}

#endif
