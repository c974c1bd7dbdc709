// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// A function as compilers begin most: the kernel emulates its first instruction.
TEXT ·probed(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ BP
	POPQ  BP
	RET

// func address() uintptr
TEXT ·address(SB), NOSPLIT, $0-8
	LEAQ ·probed(SB), AX
	MOVQ AX, ret+0(FP)
	RET

// func call(n uint64)
//
// The arguments of probed are those of a report of host memory that has no reported end:
// address, size, allocated, reserved, device.
TEXT ·call(SB), NOSPLIT, $16-8
	MOVQ n+0(FP), CX
	MOVQ CX, 0(SP)

loop:
	CMPQ 0(SP), $0
	JEQ  done
	MOVQ $64, DI
	MOVQ $512, SI
	MOVQ $512, DX
	MOVQ $0, CX
	MOVQ $0, R8
	CALL ·probed(SB)
	DECQ 0(SP)
	JMP  loop

done:
	RET
