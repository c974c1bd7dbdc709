// SPDX-License-Identifier: Apache-2.0

package environ

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
)

const (
	headerSize  = 64
	segmentSize = 56
	symbolSize  = 24
	maxSegments = 256
	maxDynamic  = 512  // entries
	maxChain    = 4096 // symbols per hash bucket
)

var errNoSymbol = errors.New("its dynamic symbols lack environ")

// library is an ELF file. The file may be hostile: every access goes through read, and every loop
// is bounded.
type library struct {
	io.ReaderAt
	segments []elf.Prog64
	dynamic  map[elf.DynTag]uint64
}

func openLibrary(r io.ReaderAt) (*library, error) {
	l := &library{ReaderAt: r, dynamic: map[elf.DynTag]uint64{}}
	var h elf.Header64
	if err := l.read(0, headerSize, &h); err != nil {
		return nil, err
	}
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	if string(h.Ident[:4]) != elf.ELFMAG || elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 ||
		elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB || elf.Machine(h.Machine) != machine {
		return nil, fmt.Errorf("not a 64-bit ELF file for %v", machine)
	}
	if h.Phentsize != segmentSize || h.Phnum > maxSegments {
		return nil, fmt.Errorf("%d program headers of %d bytes", h.Phnum, h.Phentsize)
	}
	l.segments = make([]elf.Prog64, h.Phnum)
	if err := l.read(h.Phoff, segmentSize*int(h.Phnum), l.segments); err != nil {
		return nil, err
	}
	return l, l.readDynamic()
}

func (l *library) read(offset uint64, size int, to any) error {
	b, err := l.bytes(offset, size)
	if err != nil {
		return err
	}
	_, err = binary.Decode(b, binary.LittleEndian, to)
	return err
}

func (l *library) bytes(offset uint64, size int) ([]byte, error) {
	b := make([]byte, size)
	if int64(offset) < 0 {
		return nil, fmt.Errorf("offset %#x: %w", offset, io.ErrUnexpectedEOF)
	}
	if n, err := l.ReadAt(b, int64(offset)); n < size {
		return nil, fmt.Errorf("read %d bytes at %#x: %w", size, offset, err)
	}
	return b, nil
}

func (l *library) readDynamic() error {
	for _, s := range l.segments {
		if elf.ProgType(s.Type) != elf.PT_DYNAMIC {
			continue
		}
		entries := make([]elf.Dyn64, min(s.Filesz/16, maxDynamic))
		if err := l.read(s.Off, 16*len(entries), entries); err != nil {
			return err
		}
		for _, e := range entries {
			if elf.DynTag(e.Tag) == elf.DT_NULL {
				break
			}
			l.dynamic[elf.DynTag(e.Tag)] = e.Val
		}
	}
	return nil
}

// offset translates an address in the file's address space into a file offset.
func (l *library) offset(address uint64) (uint64, error) {
	for _, s := range l.segments {
		if elf.ProgType(s.Type) == elf.PT_LOAD && address >= s.Vaddr && address-s.Vaddr < s.Filesz {
			return s.Off + (address - s.Vaddr), nil
		}
	}
	return 0, fmt.Errorf("address %#x is not in the file", address)
}

func (l *library) at(tag elf.DynTag) (uint64, error) {
	address, ok := l.dynamic[tag]
	if !ok {
		return 0, errNoSymbol
	}
	return l.offset(address)
}

// variable returns the address of the environ pointer before relocation. Symbols that the file only
// refers to do not count.
func (l *library) variable() (uint64, error) {
	for _, name := range []string{"environ", "__environ"} {
		address, err := l.lookup(name)
		if err == nil || !errors.Is(err, errNoSymbol) {
			return address, err
		}
	}
	return 0, errNoSymbol
}

// lookup searches the hash table as the dynamic linker does.
func (l *library) lookup(name string) (uint64, error) {
	table, err := l.at(elf.DT_GNU_HASH)
	if err != nil {
		return 0, err
	}
	var head struct{ Buckets, First, BloomWords, Shift uint32 }
	if err := l.read(table, 16, &head); err != nil {
		return 0, err
	}
	if head.Buckets == 0 {
		return 0, errNoSymbol
	}
	hash := gnuHash(name)
	buckets := table + 16 + 8*uint64(head.BloomWords)
	var number uint32
	if err := l.read(buckets+4*uint64(hash%head.Buckets), 4, &number); err != nil {
		return 0, err
	}
	if number < head.First { // 0: empty bucket
		return 0, errNoSymbol
	}
	chain := buckets + 4*uint64(head.Buckets)
	for range maxChain {
		var link uint32
		if err := l.read(chain+4*uint64(number-head.First), 4, &link); err != nil {
			return 0, err
		}
		if link|1 == hash|1 {
			if address, ok := l.symbol(number, name); ok {
				return address, nil
			}
		}
		if link&1 != 0 {
			return 0, errNoSymbol
		}
		number++
	}
	return 0, errNoSymbol
}

// symbol returns the value of a symbol if it is a pointer with this name.
func (l *library) symbol(number uint32, name string) (uint64, bool) {
	symbols, err := l.at(elf.DT_SYMTAB)
	if err != nil {
		return 0, false
	}
	var s elf.Sym64
	if l.read(symbols+symbolSize*uint64(number), symbolSize, &s) != nil {
		return 0, false
	}
	names, err := l.at(elf.DT_STRTAB)
	if err != nil {
		return 0, false
	}
	text, err := l.bytes(names+uint64(s.Name), len(name)+1)
	return s.Value, err == nil && bytes.Equal(text, append([]byte(name), 0)) &&
		elf.ST_TYPE(s.Info) == elf.STT_OBJECT && s.Size == 8 && elf.SectionIndex(s.Shndx) != elf.SHN_UNDEF
}

func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}
