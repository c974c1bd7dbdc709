// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"debug/elf"
	"encoding/binary"
)

// searchDynamic finds exported functions as the dynamic loader does: with the GNU hash table, at
// the cost of a few reads for a library of any size, or with the older hash table, which is as long
// as the symbol table.
func (l *Library) searchDynamic(names []string, found map[string]candidate) {
	var versions *table
	if offset, ok := l.file.Table(elf.DT_VERSYM); ok {
		versions = &table{symbols: offset}
	}
	if _, ok := l.file.Table(elf.DT_GNU_HASH); ok {
		for _, name := range names {
			// A damaged table may still have some of the names.
			_ = l.file.Lookup(name, func(index uint64, s elf.Sym64) bool {
				l.offer(found, name, s, l.rank(s, "", versions, index))
				return true
			})
		}
		return
	}
	t := table{namesSize: l.file.Dynamic[elf.DT_STRSZ]}
	var ok bool
	if t.symbols, ok = l.file.Table(elf.DT_SYMTAB); !ok {
		return
	}
	if t.names, ok = l.file.Table(elf.DT_STRTAB); !ok {
		return
	}
	if hash, ok := l.file.Table(elf.DT_HASH); ok {
		head, err := l.file.Read(hash, 8)
		if err != nil {
			return
		}
		t.count = min(uint64(binary.LittleEndian.Uint32(head[4:])), maxSymbols)
		l.scan(t, names, versions, found)
	}
}
