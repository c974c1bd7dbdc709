// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/symbolize/internal/dwarf"
)

// symbol is one function of a table with up to millions: 12 bytes. Its name stays in the file.
type symbol struct {
	offset uint32 // relative to the table's base
	size   uint32 // in bytes; the top two bits are the rank
	name   uint32 // offset in the string table
}

// Ranks of symbols at one address. The highest wins.
const (
	rankLabel  = iota // assembler code without a type
	rankLocal         // static
	rankWeak          // often an alias
	rankGlobal        // visible to other files
	rankShift  = 30
	maxSize    = 1<<rankShift - 1
)

func (s symbol) bytes() uint32 { return s.size & maxSize }

// symtab finds the functions of one file by address.
type symtab struct {
	base    uint64
	symbols []symbol // by offset
	strings dwarf.Section
	text    []span
}

// span is a range of ELF virtual addresses.
type span struct{ low, high uint64 }

func within(spans []span, address uint64) (span, bool) {
	for _, s := range spans {
		if s.low <= address && address < s.high {
			return s, true
		}
	}
	return span{}, false
}

// readSymtab reads the functions of .symtab or .dynsym, at most limit symbols.
func readSymtab(table, names dwarf.Section, text []span, limit int) (*symtab, error) {
	t := &symtab{strings: names, text: text, base: math.MaxUint64}
	for _, s := range text {
		t.base = min(t.base, s.low)
	}
	n := 0
	if err := t.each(table, limit, func(symbol) { n++ }); err != nil {
		return nil, err
	}
	t.symbols = make([]symbol, 0, n) // exact: a growing slice would need twice the memory
	err := t.each(table, limit, func(s symbol) {
		if len(t.symbols) < n {
			t.symbols = append(t.symbols, s)
		}
	})
	slices.SortFunc(t.symbols, func(a, b symbol) int {
		return cmp.Compare(uint64(a.offset)<<32|uint64(a.size), uint64(b.offset)<<32|uint64(b.size))
	})
	return t, err
}

// each calls fn for every function in table.
func (t *symtab) each(table dwarf.Section, limit int, fn func(symbol)) error {
	const entrySize = 24 // of an Elf64_Sym
	total := min(table.Size/entrySize, int64(limit))
	buf := make([]byte, min(total, 16<<10)*entrySize)
	for done := int64(0); done < total; {
		n := min(total-done, int64(len(buf)/entrySize))
		chunk := buf[:n*entrySize]
		if got, err := table.R.ReadAt(chunk, done*entrySize); got < len(chunk) {
			return fmt.Errorf("read symbols: %w", err)
		}
		for ; len(chunk) > 0; chunk = chunk[entrySize:] {
			if s, ok := t.parse(chunk); ok {
				fn(s)
			}
		}
		done += n
	}
	return nil
}

// parse reads an Elf64_Sym: name u32, info u8, other u8, section u16, value u64, size u64.
func (t *symtab) parse(b []byte) (symbol, bool) {
	kind, binding := elf.ST_TYPE(b[4]), elf.ST_BIND(b[4])
	value := binary.LittleEndian.Uint64(b[8:])
	rank := uint32(rankLocal)
	switch {
	case elf.SectionIndex(binary.LittleEndian.Uint16(b[6:])) == elf.SHN_UNDEF:
		return symbol{}, false
	case kind == elf.STT_NOTYPE && binding == elf.STB_GLOBAL:
		rank = rankLabel // local labels are the assembler's mapping symbols, such as $x
	case kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC:
		return symbol{}, false
	case binding == elf.STB_WEAK:
		rank = rankWeak
	case binding != elf.STB_LOCAL:
		rank = rankGlobal
	}
	if _, ok := within(t.text, value); !ok || value-t.base > math.MaxUint32 {
		return symbol{}, false
	}
	size := uint32(min(binary.LittleEndian.Uint64(b[16:]), maxSize))
	return symbol{uint32(value - t.base), size | rank<<rankShift, binary.LittleEndian.Uint32(b)}, true
}

// lookup returns the innermost function that contains address. A function without a size extends to
// the next one, or to the end of its section.
func (t *symtab) lookup(address uint64) (string, bool) {
	section, ok := within(t.text, address)
	if !ok || address-t.base > math.MaxUint32 {
		return "", false
	}
	offset := uint32(address - t.base)
	end, _ := slices.BinarySearchFunc(t.symbols, offset, func(s symbol, offset uint32) int {
		if s.offset <= offset {
			return -1
		}
		return 1
	})
	const maxNested = 64
	for i := end - 1; i >= max(0, end-maxNested); i-- {
		if s := t.symbols[i]; offset-s.offset < s.bytes() {
			return t.best(i, func(s symbol) bool { return offset-s.offset < s.bytes() }), true
		}
	}
	if end > 0 && t.symbols[end-1].bytes() == 0 && t.base+uint64(t.symbols[end-1].offset) >= section.low {
		return t.best(end-1, func(symbol) bool { return true }), true
	}
	return "", false
}

// best selects a name from the symbols of one address, of which i is the last: the highest rank,
// then the fewest leading underscores, then the shortest name.
func (t *symtab) best(i int, fits func(symbol) bool) string {
	const maxAliases = 16
	var best string
	bestRank := uint32(0)
	start := t.symbols[i].offset
	for n := 0; n < maxAliases && i >= 0 && t.symbols[i].offset == start; n, i = n+1, i-1 {
		rank := t.symbols[i].size >> rankShift
		if !fits(t.symbols[i]) || best != "" && rank < bestRank {
			continue
		}
		name, err := t.strings.String(uint64(t.symbols[i].name))
		if err != nil || name == "" {
			continue
		}
		name = unversioned(name)
		if best == "" || rank > bestRank || plainer(name, best) {
			best, bestRank = name, rank
		}
	}
	return best
}

func plainer(a, b string) bool {
	underscores := func(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }
	return cmp.Or(cmp.Compare(underscores(a), underscores(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
}
