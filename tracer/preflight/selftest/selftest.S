// SPDX-License-Identifier: Apache-2.0

// This program installs a seccomp filter that kills it on any system call except write and exit,
// then calls `probed` eight times. Kernels whose return probes make a system call that the filter
// does not allow kill it. Exit status: 0, 100 if it could not install the filter, 101 if a call
// returned a wrong value. Built by build.sh, for amd64.

#include <asm/unistd.h>
#include <linux/bpf_common.h>

// Copied from headers that only C can include: linux/prctl.h, seccomp.h, audit.h.
#define PR_SET_NO_NEW_PRIVS 38
#define SECCOMP_SET_MODE_FILTER 1
#define KILL_PROCESS 0x80000000
#define ALLOW 0x7fff0000
#define AUDIT_ARCH_X86_64 0xc000003e

#define CALLS 8

.text
.globl probed
.type probed, @function
probed:
	push %rbx
	mov %edi, %eax
	pop %rbx
	ret
.size probed, . - probed

.globl _start
.type _start, @function
_start:
	// no_new_privs; without it, seccomp requires CAP_SYS_ADMIN
	mov $__NR_prctl, %eax
	mov $PR_SET_NO_NEW_PRIVS, %edi
	mov $1, %esi
	xor %edx, %edx
	xor %r10d, %r10d
	xor %r8d, %r8d
	syscall
	test %rax, %rax
	jnz nofilter

	mov $__NR_seccomp, %eax
	mov $SECCOMP_SET_MODE_FILTER, %edi
	xor %esi, %esi
	lea filter(%rip), %rcx
	sub $16, %rsp
	movw $(filter_end - filter) / 8, (%rsp)
	mov %rcx, 8(%rsp)
	mov %rsp, %rdx
	syscall
	test %rax, %rax
	jnz nofilter

	mov $CALLS, %ebx
1:	mov %ebx, %edi
	call probed
	cmp %ebx, %eax
	jne wrong
	dec %ebx
	jnz 1b

	xor %edi, %edi
	jmp exit
nofilter:
	mov $100, %edi
	jmp exit
wrong:
	mov $101, %edi
exit:
	mov $__NR_exit_group, %eax
	syscall
	hlt
.size _start, . - _start

.balign 8
filter: // struct sock_filter: code, jt, jf, k
.macro insn code, jt, jf, k
	.short \code
	.byte \jt, \jf
	.long \k
.endm
	insn (BPF_LD|BPF_W|BPF_ABS), 0, 0, 4 // seccomp_data.arch
	insn (BPF_JMP|BPF_JEQ|BPF_K), 0, 4, AUDIT_ARCH_X86_64
	insn (BPF_LD|BPF_W|BPF_ABS), 0, 0, 0 // seccomp_data.nr
	insn (BPF_JMP|BPF_JEQ|BPF_K), 3, 0, __NR_write
	insn (BPF_JMP|BPF_JEQ|BPF_K), 2, 0, __NR_exit
	insn (BPF_JMP|BPF_JEQ|BPF_K), 1, 0, __NR_exit_group
	insn (BPF_RET|BPF_K), 0, 0, KILL_PROCESS
	insn (BPF_RET|BPF_K), 0, 0, ALLOW
filter_end:
