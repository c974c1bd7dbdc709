// SPDX-License-Identifier: Apache-2.0

package elffile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
)

// parts are what a synthetic file consists of, in this order.
type parts struct {
	header   elf.Header64
	segments [2]elf.Prog64
	dynamic  [5]elf.Dyn64
	symbols  [4]elf.Sym64
	names    [16]byte
	head     [4]uint32 // of the GNU hash table: buckets, first symbol, Bloom words, shift
	bloom    uint64
	buckets  [2]uint32
	chains   [3]uint32
}

const (
	base      = 0x10000 // address of the first byte
	dynamicAt = headerSize + 2*segmentSize
	symbolsAt = dynamicAt + 5*16
	namesAt   = symbolsAt + 4*SymbolSize
	hashAt    = namesAt + 16
	size      = hashAt + 16 + 8 + 2*4 + 3*4
)

// newParts returns a library with the symbols "one", "two" and "one" in one chain, with which both
// buckets begin.
func newParts() *parts {
	p := &parts{
		header: elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Phoff: headerSize, Phentsize: segmentSize, Phnum: 2},
		segments: [2]elf.Prog64{
			{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Vaddr: base, Filesz: size},
			{Type: uint32(elf.PT_DYNAMIC), Off: dynamicAt, Filesz: 5 * 16},
		},
		dynamic: [5]elf.Dyn64{
			{Tag: int64(elf.DT_GNU_HASH), Val: base + hashAt}, {Tag: int64(elf.DT_SYMTAB), Val: base + symbolsAt},
			{Tag: int64(elf.DT_STRTAB), Val: base + namesAt}, {Tag: int64(elf.DT_STRSZ), Val: 16},
		},
		symbols: [4]elf.Sym64{{}, {Name: 1, Value: 11}, {Name: 5, Value: 22}, {Name: 1, Value: 33}},
		head:    [4]uint32{2, 1, 1, 0},
	}
	copy(p.header.Ident[:], elf.ELFMAG)
	p.header.Ident[elf.EI_CLASS], p.header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	copy(p.names[:], "\x00one\x00two\x00")
	p.buckets = [2]uint32{1, 1}
	p.chains = [3]uint32{gnuHash("one") &^ 1, gnuHash("two") &^ 1, gnuHash("one") | 1}
	return p
}

func (p *parts) file() []byte {
	var b []byte
	for _, part := range []any{p.header, p.segments, p.dynamic, p.symbols, p.names, p.head, p.bloom, p.buckets, p.chains} {
		b, _ = binary.Append(b, binary.LittleEndian, part)
	}
	return b
}

// lookup returns the values of the symbols of a name, at most most.
func lookup(t *testing.T, file []byte, name string, most int) (values []uint64, err error) {
	t.Helper()
	f, err := Open(bytes.NewReader(file), uint64(len(file)), elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	err = f.Lookup(name, func(index uint64, s elf.Sym64) bool {
		if s.Value != 11*index {
			t.Errorf("%s: symbol %d has value %d", name, index, s.Value)
		}
		values = append(values, s.Value)
		return len(values) < most
	})
	return values, err
}

func TestLookupFindsAllOfAName(t *testing.T) {
	file := newParts().file()
	if len(file) != size {
		t.Fatalf("%d bytes, want %d", len(file), size)
	}
	for _, c := range []struct {
		name string
		most int
		want []uint64
	}{
		{"one", 9, []uint64{11, 33}}, {"one", 1, []uint64{11}}, {"two", 9, []uint64{22}}, {"three", 9, nil}, {"", 9, nil}, {"on", 9, nil},
	} {
		if got, err := lookup(t, file, c.name, c.most); !slices.Equal(got, c.want) || err != nil {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestLookupInDamagedTablesEnds(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(p *parts)
		want   []uint64
		err    error
	}{
		{"no hash table", func(p *parts) { p.dynamic[0].Tag = int64(elf.DT_HASH) }, nil, nil},
		{"no symbols", func(p *parts) { p.dynamic[1].Tag = int64(elf.DT_HASH) }, nil, nil},
		{"no names", func(p *parts) { p.dynamic[2].Tag = int64(elf.DT_HASH) }, nil, nil},
		{"names of no size", func(p *parts) { p.dynamic[3].Tag = int64(elf.DT_HASH) }, nil, nil},
		{"names that end before the first", func(p *parts) { p.dynamic[3].Val = 1 }, nil, nil},
		{"hash table nowhere", func(p *parts) { p.dynamic[0].Val = base + size }, nil, nil},
		{"hash table at the end", func(p *parts) { p.dynamic[0].Val = base + size - 1 }, nil, ErrNotELF},
		{"no buckets", func(p *parts) { p.head[0] = 0 }, nil, nil},
		{"empty buckets", func(p *parts) { p.buckets = [2]uint32{} }, nil, nil},
		{"a huge Bloom filter", func(p *parts) { p.head[2] = 1<<32 - 1 }, nil, ErrNotELF},
		{"buckets far away", func(p *parts) { p.buckets = [2]uint32{1<<32 - 1, 1<<32 - 1} }, nil, ErrNotELF},
		{"a chain without end", func(p *parts) { p.chains[2] &^= 1 }, []uint64{11, 33}, ErrNotELF},
		{"symbols far away", func(p *parts) { p.dynamic[1].Val = base + size - 1 }, nil, nil},
		{"a name far away", func(p *parts) { p.symbols[1].Name = 1<<32 - 1 }, []uint64{33}, nil},
		{"a truncated segment", func(p *parts) { p.segments[0].Filesz++ }, nil, nil},
		{"a segment far away", func(p *parts) { p.segments[0].Off = 1<<64 - 1 }, nil, nil},
		{"dynamic entries far away", func(p *parts) { p.segments[1].Off = 1<<64 - 1 }, nil, nil},
	} {
		p := newParts()
		c.change(p)
		if got, err := lookup(t, p.file(), "one", 9); !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, %v, want %v, %v", c.about, got, err, c.want, c.err)
		}
	}
}

// zeros has the file in front, and then words that continue its last chain.
type zeros struct {
	file  []byte
	reads int
}

func (z *zeros) ReadAt(b []byte, at int64) (int, error) {
	z.reads++
	clear(b)
	if at < int64(len(z.file)) {
		copy(b, z.file[at:])
	}
	return len(b), nil
}

func TestLookupEndsInALongChain(t *testing.T) {
	const large = 1 << 40
	p := newParts()
	p.segments[0].Filesz = large
	p.chains[2] &^= 1
	z := &zeros{file: p.file()}
	f, err := Open(z, large, elf.EM_X86_64)
	if err != nil {
		t.Fatal(err)
	}
	z.reads = 0
	if err := f.Lookup("none", func(uint64, elf.Sym64) bool { return true }); err != nil || z.reads > maxChain+10 {
		t.Errorf("%d reads, %v", z.reads, err)
	}
}

func TestOpenRejectsOtherFiles(t *testing.T) {
	for _, c := range []struct {
		about  string
		change func(p *parts)
	}{
		{"text", func(p *parts) { p.header.Ident[0] = '#' }},
		{"32-bit", func(p *parts) { p.header.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32) }},
		{"big-endian", func(p *parts) { p.header.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB) }},
		{"relocatable", func(p *parts) { p.header.Type = uint16(elf.ET_REL) }},
		{"other machine", func(p *parts) { p.header.Machine = uint16(elf.EM_AARCH64) }},
		{"no segments", func(p *parts) { p.header.Phnum = 0 }},
		{"too many segments", func(p *parts) { p.header.Phnum = maxSegments + 1 }},
		{"large segments", func(p *parts) { p.header.Phentsize++ }},
		{"segments far away", func(p *parts) { p.header.Phoff = 1<<64 - 1 }},
	} {
		p := newParts()
		c.change(p)
		if _, err := Open(bytes.NewReader(p.file()), size, elf.EM_X86_64); !errors.Is(err, ErrNotELF) {
			t.Errorf("%s: got %v", c.about, err)
		}
	}
	if _, err := Open(bytes.NewReader(newParts().file()[:40]), 40, elf.EM_X86_64); !errors.Is(err, ErrNotELF) {
		t.Errorf("short: got %v", err)
	}
	if _, err := Open(failing{}, size, elf.EM_X86_64); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a read that fails: got %v", err)
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, io.ErrClosedPipe }

func TestThisProgramIsOpened(t *testing.T) {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Skip(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := Open(file, uint64(info.Size()), Native()); err != nil || len(f.Segments) == 0 {
		t.Errorf("got %+v, %v", f, err)
	}
}

func FuzzLookup(f *testing.F) {
	f.Add(newParts().file(), "one")
	f.Add(newParts().file(), "")
	f.Fuzz(func(t *testing.T, file []byte, name string) {
		l, err := Open(bytes.NewReader(file), uint64(len(file)), elf.EM_X86_64)
		if err != nil {
			return
		}
		n := 0
		_ = l.Lookup(name, func(index uint64, s elf.Sym64) bool {
			if n++; uint64(s.Name) >= l.Dynamic[elf.DT_STRSZ] || index > uint64(len(file)) {
				t.Errorf("symbol %d: %+v", index, s)
			}
			return true
		})
		if n > maxChain || len(l.Segments) > maxSegments || len(l.Dynamic) > maxDynamic/16 {
			t.Errorf("%d symbols, %d segments, %d dynamic entries", n, len(l.Segments), len(l.Dynamic))
		}
		for _, s := range l.Segments {
			if offset, rest, ok := l.Offset(s.Vaddr, 0); ok && (offset > uint64(len(file)) || rest > uint64(len(file))-offset) {
				t.Errorf("address %#x is at %#x, followed by %#x bytes", s.Vaddr, offset, rest)
			}
		}
	})
}
