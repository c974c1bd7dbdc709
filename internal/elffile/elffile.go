// SPDX-License-Identifier: Apache-2.0

// Package elffile reads headers and dynamic symbols of 64-bit ELF files with a few small reads, as
// the dynamic loader does. It trusts none of what it reads: every read lies within the file, and
// every loop is bounded.
package elffile

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
)

const (
	maxSegments = 1024
	maxDynamic  = 64 << 10 // bytes of dynamic entries

	headerSize  = 64
	segmentSize = 56

	// SymbolSize is the size of an entry of a symbol table, in bytes.
	SymbolSize = 24
)

// ErrNotELF means that the file is not an ELF file that this machine could map.
var ErrNotELF = errors.New("not a usable ELF file")

// File is an ELF file that can be mapped: an executable or a library.
type File struct {
	Header   elf.Header64
	Segments []elf.Prog64          // at most 1024
	Dynamic  map[elf.DynTag]uint64 // empty for a static program
	Size     uint64                // bytes

	r io.ReaderAt
}

// Native returns the machine of the files that this machine maps.
func Native() elf.Machine {
	if runtime.GOARCH == "arm64" {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

// Open reads the headers of a file of size bytes. If it is not a 64-bit ELF file for the machine,
// the error wraps ErrNotELF. The caller keeps r open while it uses the File.
func Open(r io.ReaderAt, size uint64, machine elf.Machine) (*File, error) {
	f := &File{r: r, Size: size}
	var head [headerSize]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read header of %d bytes: %w", size, orNotELF(err))
	}
	if err := f.parseHeader(head[:], machine); err != nil {
		return nil, err
	}
	f.Segments = make([]elf.Prog64, f.Header.Phnum)
	if err := f.Decode(f.Header.Phoff, uint64(f.Header.Phnum)*segmentSize, f.Segments); err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	f.readDynamic()
	return f, nil
}

func orNotELF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("file ends too early: %w", ErrNotELF)
	}
	return err
}

func (f *File) parseHeader(b []byte, machine elf.Machine) error {
	switch {
	case string(b[:4]) != elf.ELFMAG:
		return fmt.Errorf("no ELF header: %w", ErrNotELF)
	case elf.Class(b[elf.EI_CLASS]) != elf.ELFCLASS64:
		return fmt.Errorf("%v, not 64-bit: %w", elf.Class(b[elf.EI_CLASS]), ErrNotELF)
	case elf.Data(b[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return fmt.Errorf("%v, not little-endian: %w", elf.Data(b[elf.EI_DATA]), ErrNotELF)
	}
	h := &f.Header
	if _, err := binary.Decode(b, binary.LittleEndian, h); err != nil {
		return err
	}
	if t := elf.Type(h.Type); t != elf.ET_EXEC && t != elf.ET_DYN {
		return fmt.Errorf("%v, neither executable nor library: %w", t, ErrNotELF)
	}
	if m := elf.Machine(h.Machine); m != machine {
		return fmt.Errorf("for %v, not %v: %w", m, machine, ErrNotELF)
	}
	if h.Phentsize != segmentSize || h.Phnum == 0 || h.Phnum > maxSegments {
		return fmt.Errorf("%d program headers of %d bytes: %w", h.Phnum, h.Phentsize, ErrNotELF)
	}
	return nil
}

// readDynamic reads the dynamic entries from where the dynamic loader reads them: section headers
// may be missing or wrong.
func (f *File) readDynamic() {
	f.Dynamic = map[elf.DynTag]uint64{}
	for _, s := range f.Segments {
		if elf.ProgType(s.Type) != elf.PT_DYNAMIC {
			continue
		}
		b, err := f.Read(s.Off, min(s.Filesz, maxDynamic))
		if err != nil {
			return
		}
		for ; len(b) >= 16; b = b[16:] {
			tag, value := elf.DynTag(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint64(b[8:])
			if tag == elf.DT_NULL {
				break
			}
			f.Dynamic[tag] = value
		}
		return
	}
}

// Decode reads length bytes at an offset into to, as encoding/binary does.
func (f *File) Decode(offset, length uint64, to any) error {
	b, err := f.Read(offset, length)
	if err != nil {
		return err
	}
	_, err = binary.Decode(b, binary.LittleEndian, to)
	return err
}

// Read returns length bytes at an offset. It checks the range against the file's size before it
// allocates memory; beyond the end, the error wraps ErrNotELF.
func (f *File) Read(offset, length uint64) ([]byte, error) {
	if length > f.Size || offset > f.Size-length || offset > math.MaxInt64 {
		return nil, fmt.Errorf("%d bytes at %#x of a file of %d: %w", length, offset, f.Size, ErrNotELF)
	}
	b := make([]byte, length)
	if _, err := f.r.ReadAt(b, int64(offset)); err != nil {
		return nil, orNotELF(err)
	}
	return b, nil
}

// Offset returns the file offset of a virtual address in a segment with all flags, and how many
// bytes of the segment follow in the file.
func (f *File) Offset(address uint64, flags elf.ProgFlag) (offset, rest uint64, ok bool) {
	for _, s := range f.Segments {
		if elf.ProgType(s.Type) != elf.PT_LOAD || elf.ProgFlag(s.Flags)&flags != flags {
			continue
		}
		if address < s.Vaddr || address-s.Vaddr >= s.Filesz || s.Off > f.Size {
			continue
		}
		into := address - s.Vaddr
		if s.Filesz > f.Size-s.Off {
			return 0, 0, false // truncated
		}
		return s.Off + into, s.Filesz - into, true
	}
	return 0, 0, false
}

// Table returns the file offset to which a dynamic entry points.
func (f *File) Table(tag elf.DynTag) (offset uint64, ok bool) {
	address, ok := f.Dynamic[tag]
	if !ok {
		return 0, false
	}
	offset, _, ok = f.Offset(address, 0)
	return offset, ok
}
