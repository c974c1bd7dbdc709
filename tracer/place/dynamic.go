// SPDX-License-Identifier: Apache-2.0

package place

import (
	"debug/elf"
	"encoding/binary"
)

// maxChain is the longest walk along one hash chain.
const maxChain = 4096

// searchDynamic finds exported functions as the dynamic loader does: with the GNU hash table, at
// the cost of a few reads for a library of any size, or with the older hash table, which is as long
// as the symbol table.
func (l *Library) searchDynamic(names []string, found map[string]candidate) {
	t := table{namesSize: l.dynamic[elf.DT_STRSZ]}
	var ok bool
	if t.symbols, _, ok = l.tag(elf.DT_SYMTAB); !ok {
		return
	}
	if t.names, _, ok = l.tag(elf.DT_STRTAB); !ok {
		return
	}
	var versions *table
	if offset, _, ok := l.tag(elf.DT_VERSYM); ok {
		versions = &table{symbols: offset}
	}
	if hash, _, ok := l.tag(elf.DT_GNU_HASH); ok {
		for _, name := range names {
			l.searchHash(hash, t, versions, name, found)
		}
		return
	}
	if hash, _, ok := l.tag(elf.DT_HASH); ok {
		head, err := l.read(hash, 8)
		if err != nil {
			return
		}
		t.count = min(uint64(binary.LittleEndian.Uint32(head[4:])), maxSymbols)
		l.scan(t, names, versions, found)
	}
}

// tag returns the file offset to which a dynamic entry points, and the bytes left in its segment.
func (l *Library) tag(tag elf.DynTag) (offset, rest uint64, ok bool) {
	address, ok := l.dynamic[tag]
	if !ok {
		return 0, 0, false
	}
	return l.offset(address, 0)
}

// searchHash walks the hash chain of name. The table consists of a header (buckets, first symbol,
// Bloom words, shift), the Bloom filter, the buckets and the chains.
func (l *Library) searchHash(at uint64, t table, versions *table, name string, found map[string]candidate) {
	head, err := l.read(at, 16)
	if err != nil {
		return
	}
	buckets := uint64(binary.LittleEndian.Uint32(head))
	first := uint64(binary.LittleEndian.Uint32(head[4:]))
	bloom := uint64(binary.LittleEndian.Uint32(head[8:]))
	if buckets == 0 {
		return
	}
	bucketsAt := at + 16 + 8*bloom
	chainsAt := bucketsAt + 4*buckets
	hash := gnuHash(name)
	start, err := l.word(bucketsAt + 4*(uint64(hash)%buckets))
	if err != nil || uint64(start) < first {
		return
	}
	for i := uint64(start); i < uint64(start)+maxChain; i++ {
		h, err := l.word(chainsAt + 4*(i-first))
		if err != nil {
			return
		}
		if h|1 == hash|1 {
			l.offerDynamic(t, versions, i, name, found)
		}
		if h&1 != 0 {
			return
		}
	}
}

func (l *Library) offerDynamic(t table, versions *table, index uint64, name string, found map[string]candidate) {
	b, err := l.read(t.symbols+index*symbolSize, symbolSize)
	if err != nil {
		return
	}
	s := parseSymbol(b)
	if uint64(s.Name) >= t.namesSize {
		return
	}
	text, err := l.read(t.names+uint64(s.Name), uint64(len(name))+1)
	if err != nil || string(text) != name+"\x00" {
		return
	}
	l.offer(found, name, s, l.rank(s, "", versions, index))
}

func (l *Library) word(offset uint64) (uint32, error) {
	b, err := l.read(offset, 4)
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
