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
// data as well; lld leaves zeros there, where the profiler reads CPython's tables of members. On arm64
// it has keyStub's code too.
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
	return n, err
}
