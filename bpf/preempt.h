/* SPDX-License-Identifier: GPL-2.0-only */
/* Keeps a program on its CPU, undisturbed. */
#ifndef VRAMPROF_PREEMPT_H
#define VRAMPROF_PREEMPT_H

#ifdef PREEMPT_GUARD
/* From Linux 6.13 a preempted uprobe program can lose its stack and its per-CPU data
 * (a76ab5731e32); kfuncs since 6.10. */
extern void bpf_preempt_disable(void) __attribute__((section(".ksyms")));
extern void bpf_preempt_enable(void) __attribute__((section(".ksyms")));
#define guard_begin() bpf_preempt_disable()
#define guard_end() bpf_preempt_enable()
#else
#define guard_begin()
#define guard_end()
#endif

#endif
