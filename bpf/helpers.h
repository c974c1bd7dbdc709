/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's helper functions and flags that the unwinder's headers lack. */
#ifndef VRAMPROF_HELPERS_H
#define VRAMPROF_HELPERS_H

#include "unwinder_defs.h"

#define BPF_F_MMAPABLE (1 << 10)
#define E2BIG 7 /* a map is full */
#define BPF_RB_AVAIL_DATA 0
#define BPF_RB_CONS_POS 2
#define BPF_RB_PROD_POS 3

#define SIGSTOP 19

static long (*bpf_get_attach_cookie)(void *ctx) = (void *)BPF_FUNC_get_attach_cookie;
static void *(*bpf_ringbuf_reserve)(void *ringbuf, u64 size, u64 flags) = (void *)BPF_FUNC_ringbuf_reserve;
static u64 (*bpf_ringbuf_query)(void *ringbuf, u64 what) = (void *)BPF_FUNC_ringbuf_query;
static void (*bpf_ringbuf_submit)(void *data, u64 flags) = (void *)BPF_FUNC_ringbuf_submit;
static void (*bpf_ringbuf_discard)(void *data, u64 flags) = (void *)BPF_FUNC_ringbuf_discard;
static long (*bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)BPF_FUNC_map_push_elem;
static long (*bpf_map_pop_elem)(void *map, void *value) = (void *)BPF_FUNC_map_pop_elem;
static long (*bpf_probe_read_kernel_str)(void *dst, u32 size, const void *from) = (void *)BPF_FUNC_probe_read_kernel_str;
static long (*bpf_seq_write)(void *seq, const void *data, u32 len) = (void *)BPF_FUNC_seq_write;
static long (*bpf_send_signal)(u32 sig) = (void *)BPF_FUNC_send_signal;

#endif
