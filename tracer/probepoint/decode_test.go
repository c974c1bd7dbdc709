// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"
)

func TestDecodeFindsTheEmulatedInstruction(t *testing.T) {
	for _, c := range []struct {
		name     string
		machine  elf.Machine
		code     string // hex
		offset   int
		emulated bool
		shape    string
	}{
		{"libcuda stub: cmpl $imm,(rip); je; jmp *(rip)", elf.EM_X86_64,
			"81 3d 11 22 33 00 00 ba 1c 32 74 0a ff 25 aa bb cc 00 0f 1f 44 00 b8 04 00 00 00 c3", 10, true, "cmpl+je"},
		{"libcuda stub with jne", elf.EM_X86_64, "81 3d 11 22 33 00 00 ba 1c 32 75 02 90 c3", 10, true, "cmpl+jne"},
		{"libcuda stub, near je", elf.EM_X86_64, "81 3d 11 22 33 00 00 ba 1c 32 0f 84 00 01 00 00 c3", 10, true, "cmpl+je"},
		{"libcuda stub behind endbr64", elf.EM_X86_64,
			"f3 0f 1e fa 81 3d 11 22 33 00 00 ba 1c 32 74 02 90 c3", 14, true, "endbr64+cmpl+je"},
		{"libcudart: push %r15", elf.EM_X86_64, "41 57 41 56 53 48 83 ec 20 c3", 0, true, "push"},
		{"push %rbp", elf.EM_X86_64, "55 48 89 e5 c3", 0, true, "push"},
		{"endbr64; push", elf.EM_X86_64, "f3 0f 1e fa 55 48 89 e5 c3", 4, true, "endbr64+push"},
		{"endbr64; nop", elf.EM_X86_64, "f3 0f 1e fa 90 c3", 4, true, "endbr64+nop"},
		{"endbr64; jmp", elf.EM_X86_64, "f3 0f 1e fa e9 00 10 00 00", 4, true, "endbr64+jmp"},
		{"cmpb of a flag; jne", elf.EM_X86_64, "80 3d 11 22 33 00 00 75 02 c3 90 c3", 7, true, "cmpb+jne"},
		{"test of an argument; je", elf.EM_X86_64, "48 85 ff 74 05 c3", 3, true, "test+je"},
		{"mov (rip),%rax; test; je", elf.EM_X86_64, "48 8b 05 00 10 00 00 48 85 c0 74 05 c3", 10, true, "movq+test+je"},
		{"long nop; push", elf.EM_X86_64, "0f 1f 44 00 00 55 c3", 5, true, "nop+push"},
		{"data16 cs nopw; push", elf.EM_X86_64, "66 2e 0f 1f 84 00 00 00 00 00 53 c3", 10, true, "nop+push"},
		{"jmp first", elf.EM_X86_64, "eb 10", 0, true, "jmp"},
		{"call first", elf.EM_X86_64, "e8 00 00 00 00 c3", 0, true, "call"},

		{"sub rsp: the stack pointer changes", elf.EM_X86_64, "48 83 ec 18 53 c3", 0, false, singleStep},
		{"endbr64; sub rsp", elf.EM_X86_64, "f3 0f 1e fa 48 83 ec 08 53 c3", 0, false, singleStep},
		{"mov %rdi: an argument changes", elf.EM_X86_64, "48 89 f7 53 c3", 0, false, singleStep},
		{"xor %edi,%edi", elf.EM_X86_64, "31 ff 53 c3", 0, false, singleStep},
		{"mov %rsp,%rbp", elf.EM_X86_64, "48 89 e5 53 c3", 0, false, singleStep},
		{"cmp with memory of the caller's", elf.EM_X86_64, "48 83 3f 00 74 02 c3", 0, false, singleStep},
		{"mov to memory", elf.EM_X86_64, "c7 05 00 00 00 00 01 00 00 00 53 c3", 0, false, singleStep},
		{"ret", elf.EM_X86_64, "c3 53", 0, false, singleStep},
		{"indirect jmp", elf.EM_X86_64, "ff 25 00 00 00 00 53", 0, false, singleStep},
		{"xchg %rax,%r8 is no nop", elf.EM_X86_64, "41 90 53 c3", 0, false, singleStep},
		{"pause is no nop", elf.EM_X86_64, "f3 90 53 c3", 0, false, singleStep},
		{"a loop to the push", elf.EM_X86_64, "f3 0f 1e fa 50 ff c9 75 fb c3", 0, false, singleStep},
		{"a loop to the start is no harm", elf.EM_X86_64, "f3 0f 1e fa 50 ff c9 75 f7 c3", 4, true, "endbr64+push"},
		{"too far", elf.EM_X86_64, strings.Repeat("0f 1f 84 00 00 00 00 00", 5) + "53 c3", 0, false, singleStep},
		{"cut in the je", elf.EM_X86_64, "81 3d 11 22 33 00 00 ba 1c 32 74", 0, false, singleStep},
		{"cut in the cmpl", elf.EM_X86_64, "81 3d 11 22", 0, false, singleStep},
		{"only endbr64", elf.EM_X86_64, "f3 0f 1e fa", 0, false, singleStep},
		{"empty", elf.EM_X86_64, "", 0, false, singleStep},
		{"garbage", elf.EM_X86_64, "ff ff ff ff ff ff", 0, false, singleStep},
		{"zeros", elf.EM_X86_64, "00 00 00 00 00 00", 0, false, singleStep},
		{"prefixes without end", elf.EM_X86_64, strings.Repeat("66 ", 40), 0, false, singleStep},

		{"arm64 bti c; paciasp", elf.EM_AARCH64, "5f 24 03 d5 3f 23 03 d5", 0, false, singleStep},
		{"arm64 stp x29,x30", elf.EM_AARCH64, "fd 7b bf a9", 0, false, singleStep},
		{"arm64 adrp x16", elf.EM_AARCH64, "10 00 00 90 11 02 40 f9", 0, true, "adrp"},
		{"arm64 b", elf.EM_AARCH64, "04 00 00 14", 0, true, "b"},
		{"arm64 cbz x0", elf.EM_AARCH64, "40 00 00 b4", 0, true, "cbz"},
		{"arm64 ldr literal", elf.EM_AARCH64, "40 00 00 58", 0, false, singleStep},
		{"arm64 ldr of memory", elf.EM_AARCH64, "00 00 40 f9", 0, false, singleStep},
		{"arm64 short", elf.EM_AARCH64, "40 00", 0, false, singleStep},
		{"another machine", elf.EM_RISCV, "55", 0, false, singleStep},
	} {
		t.Run(c.name, func(t *testing.T) {
			offset, emulated, shape := Decode(c.machine, unhex(t, c.code))
			if offset != c.offset || emulated != c.emulated || shape != c.shape {
				t.Errorf("got %d %v %q, want %d %v %q", offset, emulated, shape, c.offset, c.emulated, c.shape)
			}
		})
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"81 3d 11 22 33 00 00 ba 1c 32 74 0a", "f3 0f 1e fa 55", "41 57", "48 83 ec 18", "0f 1f 44 00 00 53", "40 00 00 58",
	} {
		b, _ := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
		f.Add(true, b)
		f.Add(false, b)
	}
	f.Fuzz(func(t *testing.T, x86 bool, code []byte) {
		if !x86 {
			if offset, _, _ := Decode(elf.EM_AARCH64, code); offset != 0 {
				t.Fatalf("arm64: %d", offset)
			}
			return
		}
		offset, emulated, shape := Decode(elf.EM_X86_64, code)
		if offset == 0 {
			return
		}
		if !emulated || shape == singleStep || offset > maxWalk || offset >= len(code) {
			t.Fatalf("offset %d of %d, emulated %v, %q", offset, len(code), emulated, shape)
		}
		if emulatedX86(code[offset:]) == "" {
			t.Fatalf("offset %d is not emulated: %x", offset, code)
		}
		for at := 0; at != offset; { // an instruction boundary
			length := 4
			if !bytes.HasPrefix(code[at:], []byte{0xf3, 0x0f, 0x1e, 0xfa}) {
				inst, err := x86asm.Decode(code[at:], 64)
				if err != nil {
					t.Fatalf("offset %d: no instruction at %d: %v", offset, at, err)
				}
				length = inst.Len
			}
			if at += length; at > offset {
				t.Fatalf("offset %d is inside an instruction: %x", offset, code)
			}
		}
	})
}
