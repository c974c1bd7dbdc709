/* SPDX-License-Identifier: GPL-2.0-only */
/* Keeps verification short: tracing begins when the kernel has verified all programs. The verifier
 * follows every path and every iteration of a loop, unless it has been there in the same state.
 * Objects for older kernels, without FIND_CODE, cannot avoid that. */
#ifndef VRAMPROF_VERIFIER_H
#define VRAMPROF_VERIFIER_H

#include "unwinder_defs.h"

/* VERIFIED_ONCE defines a global function: the verifier checks it once for all arguments, and not
 * at each call. The function must check its pointers: NULL is one of all arguments.
 *
 * repeat(limit) begins a loop that its body leaves within limit iterations. each(i, limit, memory)
 * begins one that counts i up to limit, and may use a word of memory. Loops with MAY_GO_ON must
 * keep what changes where the verifier does not know its value: then the second iteration is the
 * last that it follows. */
#ifdef FIND_CODE
#define VERIFIED_ONCE __attribute__((noinline))

/* True, but for the verifier the loop may also end here: the instruction may_goto of Linux 6.9. */
#define MAY_GO_ON                                                                                                      \
	({                                                                                                             \
		__label__ end;                                                                                         \
		bool on = false;                                                                                       \
		asm volatile goto("1: .byte 0xe5; .byte 0; .long ((%l[end] - 1b - 8) / 8) & 0xffff; .short 0" ::: : end); \
		on = true;                                                                                             \
	end:;                                                                                                          \
		on;                                                                                                    \
	})

static EBPF_INLINE u64 hide_zero(u64 *memory)
{
	*memory = 0;
	return *(volatile u64 *)memory;
}

#define repeat(limit) while (MAY_GO_ON)
/* One register for the comparison and the index. */
#define each(i, limit, memory) for (u64 i = hide_zero(memory); ({ asm volatile("" : "+r"(i)); i < (limit) && MAY_GO_ON; }); i++)
#else
#define VERIFIED_ONCE static EBPF_INLINE
#define repeat(limit) for (int iteration = 0; iteration < (limit); iteration++)
#define each(i, limit, memory) for (u32 i = 0; i < (limit); i++)
#endif

#endif
