// SPDX-License-Identifier: Apache-2.0

package probepoint

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"

	"github.com/vramprof/vramprof/internal/elffile"
)

const (
	maxName    = 256     // longest symbol name with its version, in bytes
	maxMatches = 4096    // matching symbols or strings per table
	maxNames   = 1 << 30 // bytes of a table of names
	maxPlaces  = 4 << 20 // places in it where a name may begin
)

// candidate is a symbol with one of the requested names.
type candidate struct {
	symbol elf.Sym64
	rank   int // the highest wins; see rank
}

// Functions returns the named functions that the library defines, in the order of names. Names have
// no version; if there are several versions, Functions selects the default. It searches executables
// for local symbols too. Two names may share one Probe (aliases); one probe is then enough.
func (l *Library) Functions(names []string) []Function {
	found := map[string]candidate{}
	l.searchDynamic(names, found)
	if l.symtab != nil {
		l.scan(*l.symtab, names, nil, found)
	}
	var functions []Function
	for _, name := range names {
		c, ok := found[name]
		if !ok {
			continue
		}
		delete(found, name) // names may contain duplicates
		if f, ok := l.function(name, c.symbol); ok {
			functions = append(functions, f)
		}
	}
	dropOverlaps(functions)
	return functions
}

// dropOverlaps moves a probe back to its function's start if another function begins before the
// probe.
func dropOverlaps(functions []Function) {
	for i := range functions {
		f := &functions[i]
		for _, other := range functions {
			if other.Offset > f.Offset && other.Offset <= f.Probe {
				f.Probe, f.Emulated, f.Shape = f.Offset, false, singleStep
			}
		}
	}
}

func (l *Library) function(name string, s elf.Sym64) (Function, bool) {
	offset, rest, ok := l.file.Offset(s.Value, elf.PF_X)
	if !ok {
		return Function{}, false
	}
	f := Function{Name: name, Symbol: s.Value, Size: min(s.Size, rest), Offset: offset, Probe: offset, Shape: singleStep}
	sized := s.Size > 0
	length := min(rest, maxCode)
	if sized {
		length = min(length, s.Size)
	}
	code, err := l.file.Read(offset, length)
	if err != nil {
		return Function{}, false
	}
	at, emulated, shape := Decode(elf.Machine(l.file.Header.Machine), code)
	if sized || at == 0 { // the end of a function without size is unknown
		f.Probe, f.Emulated, f.Shape = offset+uint64(at), emulated, shape
	}
	return f, true
}

// offer stores s if it is a better match for name than the current candidate.
func (l *Library) offer(found map[string]candidate, name string, s elf.Sym64, rank int) {
	section := elf.SectionIndex(s.Shndx)
	if elf.ST_TYPE(s.Info) != elf.STT_FUNC || section == elf.SHN_UNDEF ||
		section >= elf.SHN_LORESERVE && section != elf.SHN_XINDEX {
		return
	}
	if _, _, ok := l.file.Offset(s.Value, elf.PF_X); !ok {
		return
	}
	if c, ok := found[name]; !ok || rank > c.rank {
		found[name] = candidate{s, rank}
	}
}

// Ranks of symbols with the same name.
const (
	rankLocal   = iota // a local symbol of an executable: static cudart
	rankHidden         // an old version, name@VERSION
	rankDefault        // no version, or name@@VERSION
)

// hiddenVersion marks versions in .gnu.version that are not the default.
const hiddenVersion = 0x8000

// scan reads a whole table in pieces: first the string table, to find the requested names, then the
// symbols. versions is the ELF version table of t, or nil.
func (l *Library) scan(t table, names []string, versions *table, found map[string]candidate) {
	wanted := l.findNames(t, names)
	if len(wanted) == 0 {
		return
	}
	offers := 0
	const piece = 16 << 10
	for first := uint64(0); first < t.count; first += piece {
		n := min(piece, t.count-first)
		b, err := l.file.Read(t.symbols+first*elffile.SymbolSize, n*elffile.SymbolSize)
		if err != nil {
			return
		}
		for i := range n {
			s := elffile.ParseSymbol(b[i*elffile.SymbolSize:])
			if elf.ST_TYPE(s.Info) != elf.STT_FUNC {
				continue
			}
			w, ok := wanted[s.Name]
			if !ok {
				continue
			}
			l.offer(found, w.name, s, l.rank(s, w.version, versions, first+i))
			if offers++; offers == maxMatches {
				return
			}
		}
	}
}

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

// nameAt is one of the requested names in a string table.
type nameAt struct {
	name    string
	version string // "", "@" or "@@"
}

// findNames returns the offsets of the names in the string table. It is fast if they share a
// prefix.
func (l *Library) findNames(t table, names []string) map[uint32]nameAt {
	asked := map[string]string{}
	for _, name := range names {
		asked[name] = name
	}
	prefix := []byte(commonPrefix(names))
	found := map[uint32]nameAt{}
	const piece = 1 << 20
	places := 0
	for first := uint64(0); first < min(t.namesSize, maxNames); first += piece {
		text, err := l.file.Read(t.names+first, min(piece+maxName, t.namesSize-first))
		if err != nil {
			return found
		}
		for at := 0; at < piece && len(found) < maxMatches; at++ {
			next := bytes.Index(text[min(at, len(text)):], prefix)
			if next < 0 || at+next >= min(piece, len(text)) {
				break
			}
			if places++; places > maxPlaces {
				return found
			}
			at += next
			base, version := splitName(text[at:min(len(text), at+maxName)])
			if name, ok := asked[string(base)]; ok {
				found[uint32(first)+uint32(at)] = nameAt{name, version}
			}
		}
	}
	return found
}

func commonPrefix(names []string) string {
	if len(names) == 0 {
		return ""
	}
	prefix := names[0]
	for _, name := range names {
		for !strings.HasPrefix(name, prefix) {
			prefix = prefix[:len(prefix)-1]
		}
	}
	return prefix
}

func (l *Library) rank(s elf.Sym64, version string, versions *table, index uint64) int {
	switch {
	case elf.ST_BIND(s.Info) == elf.STB_LOCAL:
		return rankLocal
	case version == "@":
		return rankHidden
	case versions != nil:
		b, err := l.file.Read(versions.symbols+2*index, 2)
		if err == nil && binary.LittleEndian.Uint16(b)&hiddenVersion != 0 {
			return rankHidden
		}
	}
	return rankDefault
}

// splitName splits "cudaMalloc@@libcudart.so.12\0" into "cudaMalloc" and "@@".
func splitName(text []byte) (base []byte, version string) {
	end := bytes.IndexByte(text, 0)
	if end < 0 {
		return nil, ""
	}
	base = text[:end]
	i := bytes.IndexByte(base, '@')
	switch {
	case i < 0:
		return base, ""
	case bytes.HasPrefix(base[i:], []byte("@@")):
		return base[:i], "@@"
	}
	return base[:i], "@"
}
