// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"debug/elf"
	"strings"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

const (
	// maxWalk is the farthest that a probe may be from its function's start, in bytes.
	maxWalk = 32
	// maxCode is how many bytes of a function are searched for jumps to addresses before the probe.
	maxCode = 4096

	singleStep = "single-step"
)

// Decode selects the best place for a probe in the function that begins with code: the first
// instruction that the kernel emulates. All instructions before it must leave the stack pointer,
// the arguments, the return address and the control flow unchanged, and no jump in code may target
// an instruction between the start and the probe. Otherwise offset is 0.
//
// code must end where the function ends, or earlier; its content is not trusted. emulated reports
// whether the kernel emulates the instruction at offset, which costs 0.5 µs per hit; all others are
// single-stepped. shape names the instructions up to the probe, such as "cmpl+je", or is
// "single-step".
func Decode(machine elf.Machine, code []byte) (offset int, emulated bool, shape string) {
	switch machine {
	case elf.EM_X86_64:
		return decodeX86(code)
	case elf.EM_AARCH64:
		return decodeARM64(code)
	}
	return 0, false, singleStep
}

func decodeX86(code []byte) (offset int, emulated bool, shape string) {
	code = code[:min(len(code), maxCode)]
	var names []string
	for offset <= maxWalk && offset < len(code) {
		if name := emulatedX86(code[offset:]); name != "" {
			if offset > 0 && jumpsInto(code, offset) {
				break
			}
			return offset, true, strings.Join(append(names, name), "+")
		}
		name, length := harmlessX86(code[offset:])
		if length == 0 {
			break
		}
		names = append(names, name)
		offset += length
	}
	return 0, false, singleStep
}

// emulatedX86 names the first instruction of code if the kernel emulates it, following
// branch_setup_xol_ops and push_setup_xol_ops in arch/x86/kernel/uprobes.c. Prefixed forms are
// excluded: kernels differ in them, and some take "xchg %rax,%r8" (41 90) for a nop.
func emulatedX86(code []byte) string {
	length := 1
	switch op := code[0]; {
	case op >= 0x50 && op <= 0x57, op == 0x90:
	case op >= 0x70 && op <= 0x7f, op == 0xeb:
		length = 2
	case op == 0xe8, op == 0xe9:
		length = 5
	case op == 0x41 && len(code) > 1 && code[1] >= 0x50 && code[1] <= 0x57:
		length = 2
	case op == 0x0f && len(code) > 1 && code[1] >= 0x80 && code[1] <= 0x8f:
		length = 6
	default:
		return ""
	}
	if len(code) < length {
		return ""
	}
	inst, err := x86asm.Decode(code[:length], 64)
	if err != nil || inst.Len != length {
		return ""
	}
	return strings.ToLower(inst.Op.String())
}

// harmlessX86 names the first instruction of code and returns its length if a probe may be placed
// after it; otherwise the length is 0.
func harmlessX86(code []byte) (name string, length int) {
	if strings.HasPrefix(string(code[:min(4, len(code))]), "\xf3\x0f\x1e\xfa") {
		return "endbr64", 4
	}
	inst, err := x86asm.Decode(code, 64)
	if err != nil || inst.Len <= 0 || inst.Len > len(code) || !plainPrefixes(inst) {
		return "", 0
	}
	switch inst.Op {
	case x86asm.NOP:
		return "nop", inst.Len
	case x86asm.CMP, x86asm.TEST:
	case x86asm.MOV, x86asm.LEA, x86asm.XOR:
		if !scratchRegister(inst.Args[0]) {
			return "", 0
		}
	default:
		return "", 0
	}
	for _, arg := range inst.Args {
		if !readable(arg) {
			return "", 0
		}
	}
	return strings.ToLower(inst.Op.String()) + sizeSuffix(inst), inst.Len
}

// plainPrefixes reports whether inst has no lock, repeat, segment or address-size prefix. Compilers
// do not emit them here, and decoders disagree on some.
func plainPrefixes(inst x86asm.Inst) bool {
	for _, p := range inst.Prefix {
		if p == 0 {
			break
		}
		if inst.Op == x86asm.NOP && p&0xff == x86asm.PrefixCS {
			continue // the assembler's long nops: cs nopw 0x0(%rax,%rax,1)
		}
		if !p.IsREX() && p&0xff != x86asm.PrefixDataSize {
			return false
		}
	}
	return true
}

// scratchRegister reports whether arg is a register in which neither caller nor callee expects a
// value (rax matters only to variadic functions, and CUDA has none).
func scratchRegister(arg x86asm.Arg) bool {
	switch arg {
	case x86asm.EAX, x86asm.RAX, x86asm.R10, x86asm.R11, x86asm.R10L, x86asm.R11L:
		return true
	}
	return false
}

// readable reports whether arg is a constant, a general register or memory relative to rip.
func readable(arg x86asm.Arg) bool {
	switch a := arg.(type) {
	case nil, x86asm.Imm:
		return true
	case x86asm.Reg:
		return a >= x86asm.AL && a <= x86asm.R15
	case x86asm.Mem:
		return a.Base == x86asm.RIP && a.Segment == 0
	}
	return false
}

func sizeSuffix(inst x86asm.Inst) string {
	for _, arg := range inst.Args {
		if _, ok := arg.(x86asm.Mem); ok && inst.Op != x86asm.LEA {
			return map[int]string{1: "b", 2: "w", 4: "l", 8: "q"}[inst.MemBytes]
		}
	}
	return ""
}

// jumpsInto reports whether a direct jump in code targets (0, offset]: a probe at offset would then
// count more than the entries. Bytes that do not decode are skipped one by one, which can only find
// too many jumps.
func jumpsInto(code []byte, offset int) bool {
	for pc := 0; pc < len(code); {
		inst, err := x86asm.Decode(code[pc:], 64)
		if err != nil || inst.Len <= 0 {
			pc++
			continue
		}
		if rel, ok := inst.Args[0].(x86asm.Rel); ok {
			if target := int64(pc) + int64(inst.Len) + int64(rel); target > 0 && target <= int64(offset) {
				return true
			}
		}
		pc += inst.Len
	}
	return false
}

// decodeARM64 never moves the probe: after a "paciasp", a return probe would replace a signed
// return address. The named instructions are those that arch/arm64/kernel/probes/decode-insn.c
// simulates for uprobes in all supported kernels. Not among them: nop, from Linux 6.13; loads of
// literals, which kernels reject for uprobes since October 2024 (CVE-2024-50099); bti and paciasp.
// A test in package tracer counts and times hits of all of them.
func decodeARM64(code []byte) (offset int, emulated bool, shape string) {
	inst, err := arm64asm.Decode(code)
	if err != nil {
		return 0, false, singleStep
	}
	switch inst.Op {
	case arm64asm.B, arm64asm.BL, arm64asm.BR, arm64asm.BLR, arm64asm.RET,
		arm64asm.CBZ, arm64asm.CBNZ, arm64asm.TBZ, arm64asm.TBNZ,
		arm64asm.ADR, arm64asm.ADRP:
		return 0, true, strings.ToLower(inst.Op.String())
	}
	return 0, false, singleStep
}
