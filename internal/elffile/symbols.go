// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"debug/elf"
	"encoding/binary"
)

// maxChain is the longest walk along one hash chain.
const maxChain = 4096

// Lookup calls do with each dynamic symbol of a name, and with its index, until do returns false:
// there may be several versions, and symbols that the file only refers to. It searches the GNU hash
// table as the dynamic loader does, at the cost of a few reads for a library of any size. Without
// that table it finds nothing. It returns the error of a failed read of the table.
func (f *File) Lookup(name string, do func(index uint64, s elf.Sym64) bool) error {
	at, ok := f.Table(elf.DT_GNU_HASH)
	if !ok {
		return nil
	}
	symbols, ok := f.Table(elf.DT_SYMTAB)
	if !ok {
		return nil
	}
	names, ok := f.Table(elf.DT_STRTAB)
	if !ok {
		return nil
	}
	// The table consists of a header (buckets, first symbol, Bloom words, shift), the Bloom filter,
	// the buckets and the chains.
	head, err := f.Read(at, 16)
	if err != nil {
		return err
	}
	buckets := uint64(binary.LittleEndian.Uint32(head))
	first := uint64(binary.LittleEndian.Uint32(head[4:]))
	bloom := uint64(binary.LittleEndian.Uint32(head[8:]))
	if buckets == 0 {
		return nil
	}
	bucketsAt := at + 16 + 8*bloom
	chainsAt := bucketsAt + 4*buckets
	hash := gnuHash(name)
	start, err := f.word(bucketsAt + 4*(uint64(hash)%buckets))
	if err != nil || uint64(start) < first { // 0: empty bucket
		return err
	}
	for i := uint64(start); i < uint64(start)+maxChain; i++ {
		h, err := f.word(chainsAt + 4*(i-first))
		if err != nil {
			return err
		}
		if h|1 == hash|1 {
			if s, ok := f.named(symbols+i*SymbolSize, names, name); ok && !do(i, s) {
				return nil
			}
		}
		if h&1 != 0 {
			return nil
		}
	}
	return nil
}

// named returns the symbol at an offset if it has the name.
func (f *File) named(offset, names uint64, name string) (elf.Sym64, bool) {
	b, err := f.Read(offset, SymbolSize)
	if err != nil {
		return elf.Sym64{}, false
	}
	s := ParseSymbol(b)
	if uint64(s.Name) >= f.Dynamic[elf.DT_STRSZ] {
		return elf.Sym64{}, false
	}
	text, err := f.Read(names+uint64(s.Name), uint64(len(name))+1)
	return s, err == nil && string(text) == name+"\x00"
}

func (f *File) word(offset uint64) (uint32, error) {
	b, err := f.Read(offset, 4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func gnuHash(name string) uint32 {
	h := uint32(5381)
	for i := range len(name) {
		h = h*33 + uint32(name[i])
	}
	return h
}

// ParseSymbol parses an entry of a symbol table, of at least SymbolSize bytes.
func ParseSymbol(b []byte) elf.Sym64 {
	return elf.Sym64{
		Name:  binary.LittleEndian.Uint32(b),
		Info:  b[4],
		Other: b[5],
		Shndx: binary.LittleEndian.Uint16(b[6:]),
		Value: binary.LittleEndian.Uint64(b[8:]),
		Size:  binary.LittleEndian.Uint64(b[16:]),
	}
}
