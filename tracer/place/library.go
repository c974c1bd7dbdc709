// SPDX-License-Identifier: Apache-2.0

// Package place finds functions in ELF files and, in each function, the instruction where a probe
// is cheapest. It reads headers, symbols and the first bytes of the requested functions, never
// whole files, and trusts none of it.
package place

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
)

const (
	maxSegments = 1024
	maxSections = 1 << 16
	maxSymbols  = 16 << 20 // entries per symbol table

	headerSize  = 64
	segmentSize = 56
	sectionSize = 64
	symbolSize  = 24
)

// ErrNotELF means that the file is not an ELF file that this machine could map.
var ErrNotELF = errors.New("not a usable ELF file")

// Library is an ELF file that may contain CUDA functions.
type Library struct {
	r          io.ReaderAt
	size       uint64
	machine    elf.Machine
	executable bool // starts a process, so .symtab is searched too
	segments   []elf.Prog64
	dynamic    map[elf.DynTag]uint64
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
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	return open(f, uint64(info.Size()), machine)
}

func open(r io.ReaderAt, size uint64, machine elf.Machine) (*Library, error) {
	l := &Library{r: r, size: size, machine: machine}
	var head [headerSize]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read header of %d bytes: %w", size, orNotELF(err))
	}
	h, err := parseHeader(head[:], machine)
	if err != nil {
		return nil, err
	}
	if err := l.readSegments(h); err != nil {
		return nil, err
	}
	l.readDynamic()
	l.executable = l.executable || elf.Type(h.Type) == elf.ET_EXEC
	if l.executable {
		l.findSymtab(h)
	}
	return l, nil
}

func orNotELF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("file ends too early: %w", ErrNotELF)
	}
	return err
}

func parseHeader(b []byte, machine elf.Machine) (*elf.Header64, error) {
	switch {
	case string(b[:4]) != elf.ELFMAG:
		return nil, fmt.Errorf("no ELF header: %w", ErrNotELF)
	case elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS64:
		return nil, fmt.Errorf("%v, not 64-bit: %w", elf.Class(b[elf.EI_CLASS]), ErrNotELF)
	case elf.Data(b[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return nil, fmt.Errorf("%v, not little-endian: %w", elf.Data(b[elf.EI_DATA]), ErrNotELF)
	}
	var h elf.Header64
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return nil, err
	}
	if t := elf.Type(h.Type); t != elf.ET_EXEC && t != elf.ET_DYN {
		return nil, fmt.Errorf("%v, neither executable nor library: %w", t, ErrNotELF)
	}
	if m := elf.Machine(h.Machine); m != machine {
		return nil, fmt.Errorf("for %v, not %v: %w", m, machine, ErrNotELF)
	}
	if h.Phentsize != segmentSize || h.Phnum == 0 || h.Phnum > maxSegments {
		return nil, fmt.Errorf("%d program headers of %d bytes: %w", h.Phnum, h.Phentsize, ErrNotELF)
	}
	return &h, nil
}

func (l *Library) readSegments(h *elf.Header64) error {
	b, err := l.read(h.Phoff, uint64(h.Phnum)*segmentSize)
	if err != nil {
		return fmt.Errorf("read program headers: %w", err)
	}
	l.segments = make([]elf.Prog64, h.Phnum)
	if _, err := binary.Decode(b, binary.LittleEndian, l.segments); err != nil {
		return err
	}
	for _, s := range l.segments {
		if elf.ProgType(s.Type) == elf.PT_INTERP {
			l.executable = true
		}
	}
	return nil
}

// readDynamic reads the dynamic symbols from where the dynamic loader reads them: section headers
// may be missing or wrong.
func (l *Library) readDynamic() {
	l.dynamic = map[elf.DynTag]uint64{}
	for _, s := range l.segments {
		if elf.ProgType(s.Type) != elf.PT_DYNAMIC {
			continue
		}
		b, err := l.read(s.Off, min(s.Filesz, 64<<10))
		if err != nil {
			return
		}
		for ; len(b) >= 16; b = b[16:] {
			tag, value := elf.DynTag(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])
			if tag == elf.DT_NULL {
				break
			}
			l.dynamic[tag] = value
		}
		if l.dynamic[elf.DT_FLAGS_1]&uint64(elf.DF_1_PIE) != 0 {
			l.executable = true
		}
		return
	}
}

// findSymtab looks for .symtab. A file without one is not an error.
func (l *Library) findSymtab(h *elf.Header64) {
	if h.Shentsize != sectionSize || h.Shoff == 0 {
		return
	}
	count := uint64(h.Shnum)
	if count == 0 { // 65280 sections or more: section 0 has the count
		var first elf.Section64
		if l.decode(h.Shoff, sectionSize, &first) != nil {
			return
		}
		count = first.Size
	}
	count = min(count, maxSections)
	sections := make([]elf.Section64, min(count, l.size/sectionSize))
	if l.decode(h.Shoff, uint64(len(sections))*sectionSize, sections) != nil {
		return
	}
	for _, s := range sections {
		if elf.SectionType(s.Type) != elf.SHT_SYMTAB || uint64(s.Link) >= uint64(len(sections)) {
			continue
		}
		names := sections[s.Link]
		l.symtab = &table{
			symbols: s.Off, count: min(s.Size/symbolSize, maxSymbols),
			names: names.Off, namesSize: names.Size,
		}
		return
	}
}

func (l *Library) decode(offset, length uint64, to any) error {
	b, err := l.read(offset, length)
	if err != nil {
		return err
	}
	_, err = binary.Decode(b, binary.LittleEndian, to)
	return err
}

// read checks the range against the file's size before it allocates memory.
func (l *Library) read(offset, length uint64) ([]byte, error) {
	if length > l.size || offset > l.size-length || offset > math.MaxInt64 {
		return nil, fmt.Errorf("%d bytes at %#x of a file of %d: %w", length, offset, l.size, ErrNotELF)
	}
	b := make([]byte, length)
	if _, err := l.r.ReadAt(b, int64(offset)); err != nil {
		return nil, orNotELF(err)
	}
	return b, nil
}

// offset returns the file offset of a virtual address, and how many bytes of its segment follow in
// the file.
func (l *Library) offset(address uint64, flags elf.ProgFlag) (offset, rest uint64, ok bool) {
	for _, s := range l.segments {
		if elf.ProgType(s.Type) != elf.PT_LOAD || elf.ProgFlag(s.Flags)&flags != flags {
			continue
		}
		if address < s.Vaddr || address-s.Vaddr >= s.Filesz || s.Off > l.size {
			continue
		}
		into := address - s.Vaddr
		if s.Filesz > l.size-s.Off {
			return 0, 0, false // truncated
		}
		return s.Off + into, s.Filesz - into, true
	}
	return 0, 0, false
}
