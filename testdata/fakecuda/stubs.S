// SPDX-License-Identifier: Apache-2.0
// Every export of libcuda is a stub: it compares a word of state, returns CUDA_ERROR_DEINITIALIZED
// if the library is shutting down, and otherwise jumps to the code. With ENTRIES_12_9, on x86-64,
// it begins as in the driver of CUDA 12.9: with a frame.

#define DEINITIALIZED_LOW 0xba00
#define DEINITIALIZED_HIGH 0x321c

.macro STUB name
	.section .data.rel.ro, "aw"
	.balign 8
	.hidden impl_\name
.Ltable_\name:
	.quad impl_\name

	.text
	.balign 16
	.globl \name
	.type \name, %function
\name:
	.cfi_startproc
#if defined(__x86_64__) && defined(ENTRIES_12_9)
	push %rbp          // 55
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	mov %rsp, %rbp     // 48 89 e5
	push %r12          // 41 54
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	sub $8, %rsp       // 48 83 ec 08
	.cfi_adjust_cfa_offset 8
	cmpl $0x321cba00, fakecuda_state(%rip)
	lea 8(%rsp), %rsp  // the code takes its arguments where the caller put them
	.cfi_adjust_cfa_offset -8
	pop %r12
	.cfi_adjust_cfa_offset -8
	.cfi_restore %r12
	pop %rbp
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rbp
	je 1f
	jmp *.Ltable_\name(%rip)
1:	movl $4, %eax
	ret
#elif defined(__x86_64__)
	cmpl $0x321cba00, fakecuda_state(%rip) // 81 3d rel32 imm32
	je 1f                                  // 74 xx
	jmp *.Ltable_\name(%rip)
1:	movl $4, %eax
	ret
#elif defined(__aarch64__)
	adrp x16, fakecuda_state
	ldr w16, [x16, :lo12:fakecuda_state]
	movz w17, #DEINITIALIZED_LOW
	movk w17, #DEINITIALIZED_HIGH, lsl #16
	cmp w16, w17
	b.eq 1f
	adrp x16, .Ltable_\name
	ldr x16, [x16, :lo12:.Ltable_\name]
	br x16
1:	mov w0, #4
	ret
#else
#error no stub for this machine
#endif
	.cfi_endproc
	.size \name, . - \name
.endm

	.hidden fakecuda_state
#define EXPORT(symbol, name, version) STUB symbol;
#include "exports.h"

	.section .note.GNU-stack, "", %progbits
