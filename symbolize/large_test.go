// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Symbols of the large library: function i is at textStart+i*functionSize.
const (
	textStart    = 0x1000
	functionSize = 64
)

func largeName(i int) string {
	const arguments = "RKN2at6TensorES4_S4_N3c108optionalINS5_10ScalarTypeEEENS6_INS5_6LayoutEEENS6_INS5_6DeviceEEENS6_IbEENS6_INS5_12MemoryFormatEEE"
	return fmt.Sprintf("_ZN2at6native12_GLOBAL__N_116kernel_%08dE", i) + arguments
}

// writeLarge writes an ELF file with n functions whose names are about 170 bytes. The symbols are
// unsorted, as a linker writes them.
func writeLarge(tb testing.TB, n int) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "liblarge.so")
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	const sectionNames = "\x00.text\x00.symtab\x00.strtab\x00.shstrtab\x00"
	nameSize := len(largeName(0)) + 1
	const headers, sections = 64, 5 * 64
	symtabOff := uint64(headers + sections + len(sectionNames))
	symtabSize, strtabSize := uint64(n)*24, uint64(1+n*nameSize)
	w := bufio.NewWriterSize(f, 1<<20)
	write := func(values ...any) {
		for _, v := range values {
			if err := binary.Write(w, binary.LittleEndian, v); err != nil {
				tb.Fatal(err)
			}
		}
	}
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: headers, Ehsize: headers, Shentsize: 64, Shnum: 5, Shstrndx: 4}
	copy(header.Ident[:], "\x7fELF\x02\x01\x01")
	write(header, elf.Section64{},
		elf.Section64{Name: 1, Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: textStart, Size: uint64(n * functionSize)},
		elf.Section64{Name: 7, Type: uint32(elf.SHT_SYMTAB), Off: symtabOff, Size: symtabSize, Link: 3, Entsize: 24},
		elf.Section64{Name: 15, Type: uint32(elf.SHT_STRTAB), Off: symtabOff + symtabSize, Size: strtabSize},
		elf.Section64{Name: 23, Type: uint32(elf.SHT_STRTAB), Off: headers + sections, Size: uint64(len(sectionNames))},
		[]byte(sectionNames))
	var symbol [24]byte
	for i := range n {
		k := int(uint64(i) * 2654435761 % uint64(n)) // a prime: visits each symbol once unless it divides n
		binary.LittleEndian.PutUint32(symbol[:], uint32(1+k*nameSize))
		symbol[4], symbol[6] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), 1
		binary.LittleEndian.PutUint64(symbol[8:], uint64(textStart+k*functionSize))
		binary.LittleEndian.PutUint64(symbol[16:], functionSize)
		w.Write(symbol[:])
	}
	w.WriteByte(0)
	for i := range n {
		w.WriteString(largeName(i))
		w.WriteByte(0)
	}
	if err := w.Flush(); err != nil {
		tb.Fatal(err)
	}
	return path
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLargeLibraryIsCheap bounds the memory for a library as large as PyTorch's.
func TestLargeLibraryIsCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a file of 200 MB")
	}
	const symbols = 1_000_000
	path := writeLarge(t, symbols)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before := heap()
	var m1, m2 runtime.MemStats
	runtime.ReadMemStats(&m1)
	start := time.Now()
	s, m := added(t, path, Options{}, "")
	opened := time.Since(start)
	got := s.AppendFrames(nil, path, m, textStart+123456*functionSize+5)[0]
	first := time.Since(start)
	runtime.ReadMemStats(&m2)
	kept, allocated := heap()-before, int64(m2.TotalAlloc-m1.TotalAlloc)
	t.Logf("%d MB, %d symbols: opened in %v, first name in %v, %d MB of heap kept, %d MB allocated in total",
		st.Size()>>20, symbols, opened, first, kept>>20, allocated>>20)
	if got.SystemName != largeName(123456) {
		t.Errorf("got %s", got.SystemName)
	}
	if kept > 32<<20 || allocated > 64<<20 {
		t.Error("too large")
	}
	runtime.KeepAlive(s)
}

// TestLargeDebugInfoIsCheap bounds the memory for the DWARF of many units, one of which is looked
// up.
func TestLargeDebugInfoIsCheap(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for some seconds")
	}
	lib := manyUnits(t, 100, 2000)
	st, err := os.Stat(lib)
	if err != nil {
		t.Fatal(err)
	}
	address := symbolAddress(t, lib, "u77_f1111") + 1
	before := heap()
	start := time.Now()
	s, m := added(t, lib, Options{}, "")
	f := s.AppendFrames(nil, lib, m, address)[0]
	first, kept := time.Since(start), heap()-before
	t.Logf("%d MB: first name in %v, %d KB of heap kept", st.Size()>>20, first, kept>>10)
	if f.Function != "u77_f1111" || f.Line == 0 {
		t.Errorf("got %+v", f)
	}
	if kept > 8<<20 {
		t.Error("too large")
	}
}

// manyUnits builds a library of many units, each with functions u<unit>_f<number>. All units are
// copies of one object file with renamed symbols.
func manyUnits(tb testing.TB, units, functions int) string {
	tb.Helper()
	needTools(tb, "gcc", "objcopy")
	dir := tb.TempDir()
	var b strings.Builder
	for i := range functions {
		fmt.Fprintf(&b, "struct s%d { int a, b; struct s%d *next; };\n", i, i)
		fmt.Fprintf(&b, "int f%d(struct s%d *s) {\n  return s->a + s->next->b * %d;\n}\n", i, i, i)
	}
	source, object := filepath.Join(dir, "unit.c"), filepath.Join(dir, "unit.o")
	if err := os.WriteFile(source, []byte(b.String()), 0o600); err != nil {
		tb.Fatal(err)
	}
	command(tb, "gcc", "-c", "-fPIC", "-O1", "-g", "-o", object, source)
	lib := filepath.Join(dir, "libunits.so")
	args := []string{"-shared", "-o", lib}
	for u := range units {
		unit := filepath.Join(dir, fmt.Sprintf("unit%d.o", u))
		command(tb, "objcopy", fmt.Sprintf("--prefix-symbols=u%d_", u), object, unit)
		args = append(args, unit)
	}
	command(tb, "gcc", args...)
	return lib
}
