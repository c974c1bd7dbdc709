/* SPDX-License-Identifier: GPL-2.0-only */
/* The attach cookie: a number that the tracer gives each probe. */
#ifndef VRAMPROF_ATTACH_COOKIE_H
#define VRAMPROF_ATTACH_COOKIE_H

#include "helpers.h"
#include "map_macros.h"

#ifdef NO_COOKIES
/* Linux before 5.15 has no attach cookies. There the tracer creates a small program for each
 * probe, which stores the cookie here and tail-calls the shared program. These kernels never
 * preempt uprobe programs. */
MAP(cookie, BPF_MAP_TYPE_PERCPU_ARRAY, u32, u64, 1);
static EBPF_INLINE u64 attach_cookie(void *ctx)
{
	u32 zero = 0;
	u64 *value = bpf_map_lookup_elem(&cookie, &zero);
	return value ? *value : ~0ull;
}
#else
#define attach_cookie(ctx) bpf_get_attach_cookie(ctx)
#endif

#endif
