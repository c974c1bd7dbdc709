// SPDX-License-Identifier: Apache-2.0

// Package probepoint finds functions in ELF files and, in each function, the instruction where a
// probe is cheapest. It reads headers, symbols and the first bytes of the requested functions,
// never whole files, and trusts none of it.
package probepoint

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/vramprof/vramprof/internal/elffile"
)

const (
	maxSections = 1 << 16
	maxSymbols  = 16 << 20 // entries per symbol table

	sectionSize = 64
)

// ErrNotELF means that the file is not an ELF file that this machine could map.
var ErrNotELF = elffile.ErrNotELF

// Library is an ELF file that may contain CUDA functions.
type Library struct {
	file       *elffile.File
	executable bool // starts a process, so .symtab is searched too
	symtab     *table
}

// Function is one function of a Library.
type Function struct {
	Name     string // without version
	Symbol   uint64 // ELF value
	Size     uint64 // bytes; 0: unknown
	Offset   uint64 // file offset of the symbol
	Probe    uint64 // file offset where the probe goes
	Emulated bool   // the kernel emulates the instruction there
	Shape    string // "push", "cmpl+je", "endbr64+push", "single-step"
}

// table is a symbol table in the file. count may exceed the entries that exist.
type table struct {
	symbols, count   uint64
	names, namesSize uint64
}

// Open reads the headers of f. If f is not a regular 64-bit ELF file for this machine, the error
// wraps ErrNotELF. The caller keeps ownership of f and must keep it open while it calls Functions.
func Open(f *os.File) (*Library, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file but %s: %w", info.Mode().Type(), ErrNotELF)
	}
	return open(f, uint64(info.Size()), elffile.Native())
}

func open(r io.ReaderAt, size uint64, machine elf.Machine) (*Library, error) {
	file, err := elffile.Open(r, size, machine)
	if err != nil {
		return nil, err
	}
	l := &Library{file: file}
	l.executable = elf.Type(file.Header.Type) == elf.ET_EXEC || file.Dynamic[elf.DT_FLAGS_1]&uint64(elf.DF_1_PIE) != 0 ||
		slices.ContainsFunc(file.Segments, func(s elf.Prog64) bool { return elf.ProgType(s.Type) == elf.PT_INTERP })
	if l.executable {
		l.findSymtab()
	}
	return l, nil
}

// findSymtab looks for .symtab. A file without one is not an error.
func (l *Library) findSymtab() {
	h := &l.file.Header
	if h.Shentsize != sectionSize || h.Shoff == 0 {
		return
	}
	count := uint64(h.Shnum)
	if count == 0 { // 65280 sections or more: section 0 has the count
		var first elf.Section64
		if l.file.Decode(h.Shoff, sectionSize, &first) != nil {
			return
		}
		count = first.Size
	}
	count = min(count, maxSections)
	sections := make([]elf.Section64, min(count, l.file.Size/sectionSize))
	if l.file.Decode(h.Shoff, uint64(len(sections))*sectionSize, sections) != nil {
		return
	}
	for _, s := range sections {
		if elf.SectionType(s.Type) != elf.SHT_SYMTAB || uint64(s.Link) >= uint64(len(sections)) {
			continue
		}
		names := sections[s.Link]
		l.symtab = &table{
			symbols: s.Off, count: min(s.Size/elffile.SymbolSize, maxSymbols),
			names: names.Off, namesSize: names.Size,
		}
		return
	}
}
