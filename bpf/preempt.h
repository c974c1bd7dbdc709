/* SPDX-License-Identifier: GPL-2.0-only */
/* Disables preemption where a program uses per-CPU data. */
#ifndef VRAMPROF_PREEMPT_H
#define VRAMPROF_PREEMPT_H

#ifdef PREEMPT_GUARD
/* From Linux 6.13 on, another program can overwrite the stack and the per-CPU data of a
 * preempted uprobe program (a76ab5731e32). The kfuncs exist since 6.10. */
extern void bpf_preempt_disable(void) __attribute__((section(".ksyms")));
extern void bpf_preempt_enable(void) __attribute__((section(".ksyms")));
#define guard_begin() bpf_preempt_disable()
#define guard_end() bpf_preempt_enable()
#else
#define guard_begin()
#define guard_end()
#endif

#endif
