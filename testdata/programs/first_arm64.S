/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of arm64 that differ in their first instruction, on which a probe is set. Each does
 * nothing. first_arm64.c calls them. */
	.arch armv8.5-a
	.text
.macro first name
	.global first_\name
	.type first_\name, %function
	.balign 64
first_\name:
.endm
.macro done name
	ret
	.size first_\name, . - first_\name
.endm
first nop
	nop
done nop
first bti
	bti c
done bti
first paciasp
	paciasp
	autiasp
done paciasp
first stp
	stp x29, x30, [sp, #-16]!
	ldp x29, x30, [sp], #16
done stp
first sub
	sub sp, sp, #16
	add sp, sp, #16
done sub
first mov
	mov x1, #1
done mov
first ldr
	ldr x1, [sp]
done ldr
first mrs
	mrs x1, tpidr_el0
done mrs
first adrp
	adrp x1, .
done adrp
first adr
	adr x1, .
done adr
first b
	b 1f
1:
done b
first cbz
	cbz x0, 1f
1:
done cbz
first tbz
	tbz x0, #3, 1f
1:
done tbz
first ret
done ret
first literal
	ldr x1, first_literal
done literal
	.section .note.GNU-stack, "", %progbits
