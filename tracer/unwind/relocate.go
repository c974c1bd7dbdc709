// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"math"
	"slices"

	"go.opentelemetry.io/ebpf-profiler/process"
)

// maxRelocations limits the relocated pointers of one file; CPython has some 30,000.
const maxRelocations = 1 << 19

// relocated is a file whose relative relocations are applied. GNU ld writes the pointers into the
// data as well; lld leaves zeros there, where the profiler reads CPython's tables of members. On
// arm64 it has keyStub's code too.
type relocated struct {
	process.ReadAtCloser
	pointers []pointer // by offset in the file
}

type pointer struct{ offset, value uint64 }

// relocate applies the relative relocations of a file, and keyStub. It returns f itself if there is
// nothing to change.
func relocate(f process.ReadAtCloser) process.ReadAtCloser {
	file, err := elf.NewFile(f)
	if err != nil || file.Class != elf.ELFCLASS64 || file.ByteOrder != binary.LittleEndian {
		return f
	}
	relative := map[elf.Machine]uint32{elf.EM_X86_64: uint32(elf.R_X86_64_RELATIVE), elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE)}[file.Machine]
	var list []pointer
	entries, entry := bufio.NewReader(nil), make([]byte, 24) // Elf64_Rela
	for _, s := range file.Sections {
		if relative == 0 || s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 || s.Flags&elf.SHF_COMPRESSED != 0 {
			continue
		}
		for entries.Reset(io.NewSectionReader(s, 0, int64(min(s.FileSize, math.MaxInt32)))); len(list) < maxRelocations; {
			if _, err := io.ReadFull(entries, entry); err != nil {
				break
			}
			offset, ok := offsetOf(file, binary.LittleEndian.Uint64(entry))
			if ok && binary.LittleEndian.Uint32(entry[8:]) == relative {
				list = append(list, pointer{offset, binary.LittleEndian.Uint64(entry[16:])})
			}
		}
	}
	if stub, ok := keyStub(file); ok {
		list = append(list, stub)
	}
	if len(list) == 0 {
		return f
	}
	slices.SortFunc(list, func(a, b pointer) int { return cmp.Compare(a.offset, b.offset) })
	return relocated{f, list}
}

// offsetOf returns the offset of an address in the file.
func offsetOf(file *elf.File, address uint64) (uint64, bool) {
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr < min(p.Filesz, math.MaxInt32) && p.Off < math.MaxInt32 {
			return p.Off + (address - p.Vaddr), true
		}
	}
	return 0, false
}

func (f relocated) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.ReadAtCloser.ReadAt(p, off)
	if off < 0 || n <= 0 {
		return n, err
	}
	begin, end := uint64(off), uint64(off)+uint64(n)
	// The pointer before may overlap the range.
	first, _ := slices.BinarySearchFunc(f.pointers, begin, func(r pointer, at uint64) int { return cmp.Compare(r.offset+7, at) })
	for _, r := range f.pointers[first:] {
		if r.offset >= end {
			break
		}
		var value [8]byte
		binary.LittleEndian.PutUint64(value[:], r.value)
		from := max(r.offset, begin)
		copy(p[from-begin:n], value[from-r.offset:])
	}
	if isGoBomb(p[:n]) {
		return 0, errBomb
	}
	return n, err
}

// keyFunction loads the key of CPython's thread state, up to version 3.12. On arm64 the profiler
// decodes it with the low 12 bits of _PyRuntime's address counted as a part of the key's offset: in
// Debian 12's Python 3.11, whose _PyRuntime is at ….008, it reads the key 8 bytes too far.
const keyFunction = "PyGILState_GetThisThreadState"

// keyStub returns 8 bytes of code in place of the first ones of keyFunction, which lead the
// profiler to the right key: "ldr w0, [x0, #offset]; b ." or "add x0, x0, #offset; b .", and their
// offset in the file. It returns false where the key's address cannot be followed: then the
// profiler decodes the function itself.
func keyStub(file *elf.File) (pointer, bool) {
	if file.Machine != elf.EM_AARCH64 {
		return pointer{}, false
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return pointer{}, false
	}
	var function, state elf.Symbol
	for _, s := range symbols {
		switch s.Name {
		case keyFunction:
			function = s
		case "_PyRuntime":
			state = s
		}
	}
	at, ok := offsetOf(file, function.Value)
	if !ok || function.Size < 8 || state.Value == 0 {
		return pointer{}, false
	}
	code := make([]byte, min(function.Size, 64))
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && at >= p.Off && at-p.Off < p.Filesz {
			if _, err := p.ReadAt(code, int64(at-p.Off)); err != nil {
				return pointer{}, false
			}
		}
	}
	key, loaded, ok := firstArgument(code, function.Value)
	offset := key - state.Value
	if !ok || offset >= 4096 || offset%4 != 0 { // the profiler takes no other
		return pointer{}, false
	}
	instruction := 0x91000000 | offset<<10 // add x0, x0, #offset
	if loaded {
		instruction = 0xb9400000 | offset/4<<10 // ldr w0, [x0, #offset]
	}
	const branch = 0x14000000
	return pointer{at, instruction | branch<<32}, true
}

// firstArgument follows arm64 code from an address to its first branch, and returns the address
// that x0 was loaded from or, if not loaded, its value. It returns false if that is unknown.
// Encodings are those of the Arm Architecture Reference Manual, C6.2.
func firstArgument(code []byte, at uint64) (address uint64, loaded, ok bool) {
	type register struct {
		value         uint64
		known, loaded bool
	}
	var registers [32]register
	for ; len(code) >= 4; code, at = code[4:], at+4 {
		w := binary.LittleEndian.Uint32(code)
		d, n := w&31, w>>5&31
		immediate := uint64(w >> 10 & 0xfff)
		from := registers[n]
		known := from.known && !from.loaded
		switch {
		case w&0x7c000000 == 0x14000000: // b, bl
			return registers[0].value, registers[0].loaded, registers[0].known
		case w&0x9f000000 == 0x90000000: // adrp
			pages := int64(int32(w<<8)>>11&^3 | int32(w>>29&3))
			registers[d] = register{value: at&^0xfff + uint64(pages<<12), known: true}
		case w&0xffc00000 == 0x91000000: // add xd, xn, #immediate
			registers[d] = register{value: from.value + immediate, known: known}
		case w&0xffe0ffe0 == 0xaa0003e0: // mov xd, xm
			registers[d] = registers[w>>16&31]
		case w&0xffc00000 == 0xb9400000: // ldr wd, [xn, #immediate]
			registers[d] = register{value: from.value + 4*immediate, known: known, loaded: true}
		default: // also of instructions that only read it: then nothing is claimed
			registers[d] = register{}
		}
	}
	return 0, false, false
}
