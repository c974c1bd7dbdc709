// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
)

// GNU ld writes the pointers that lld leaves zero. Without them, the file must read the same.
func TestRelativeRelocationsAreApplied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libpython3.so")
	source := "const char *texts[] = {\"one\", \"two\", \"three\"}; static int n; int *numbers[] = {&n, 0, &n};"
	gcc := exec.Command("gcc", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-x", "c", "-o", path, "-")
	gcc.Stdin = bytes.NewReader([]byte(source))
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Skipf("gcc: %v\n%s", err, out)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	linked, ok := relocate(inMemory{bytes.NewReader(want)}).(relocated)
	if !ok || len(linked.pointers) < 5 {
		t.Fatalf("found %d pointers, want 5 and more", len(linked.pointers))
	}
	zeroed := bytes.Clone(want)
	for _, p := range linked.pointers {
		copy(zeroed[p.offset:], make([]byte, 8))
	}
	if bytes.Equal(zeroed, want) {
		t.Fatal("the linker has left them out itself")
	}
	file := relocate(inMemory{bytes.NewReader(zeroed)})
	for _, size := range []int{3, 8, 64, len(want)} { // pointers overlap reads in all ways
		for off := 0; off < len(want); off += size {
			got := make([]byte, min(size, len(want)-off))
			if _, err := file.ReadAt(got, int64(off)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want[off:off+len(got)]) {
				t.Fatalf("%d bytes at %d are %x, want %x", size, off, got, want[off:off+len(got)])
			}
		}
	}
}

func TestTheFirstArgumentOfArmCodeIsFollowed(t *testing.T) {
	const (
		branch = 0x17feba0e // b pthread_getspecific
		ret    = 0xd65f03c0
	)
	for _, c := range []struct {
		name   string
		code   []uint32
		want   uint64
		loaded bool
		ok     bool
	}{
		{"Debian 12: the key, _PyRuntime not at the begin of a page", []uint32{
			0xb0002e20, // adrp x0, a36000
			0x91002000, // add  x0, x0, #8
			0xf9412c01, // ldr  x1, [x0, #600]
			0xb4000061, // cbz  x1, …
			0xb9426400, // ldr  w0, [x0, #612]
			branch, 0xd2800000, ret,
		}, 0xa36008 + 612, true, true},
		{"Debian 11: sums through several registers", []uint32{
			0xb0002e20,                         // adrp x0, a36000
			0x91220002, 0x91004043, 0xf9413041, // add x2, x0, #0x880; add x3, x2, #0x10; ldr x1, [x2, #0x260]
			0xb4000041, 0xb9425c60, branch, // cbz x1, …; ldr w0, [x3, #0x25c]
		}, 0xa36880 + 0x10 + 0x25c, true, true},
		{"the address of Py_tss_t, after a landing pad and a signed return address", []uint32{
			0xd503245f, 0xd503233f, 0xb0002e21, 0x91002021, 0xaa0103e2, 0x9117c040, branch, // bti c; paciasp; adrp x1; add x1, x1, #8; mov x2, x1; add x0, x2, #0x5f0
		}, 0xa36008 + 0x5f0, false, true},
		{"a library: _PyRuntime from its table of addresses", []uint32{
			0xb0002e20, 0xf943d400, 0x9117c000, branch, // adrp x0; ldr x0, [x0, #1960]; add x0, x0, #0x5f0
		}, 0, false, false},
		{"nothing is loaded", []uint32{0xd503201f, branch}, 0, false, false},
		{"no branch", []uint32{0xb0002e20, 0x91002000}, 0, false, false},
	} {
		var code []byte
		for _, w := range c.code {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		got, loaded, ok := firstArgument(append(code, 1, 2, 3), 0x471314)
		if ok != c.ok || ok && (got != c.want || loaded != c.loaded) {
			t.Errorf("%s: %#x, loaded %v, known %v", c.name, got, loaded, ok)
		}
	}
}

// armPython is an ELF file of arm64 with a segment from 0x1000 on: keyFunction at its begin, and
// _PyRuntime at 0x2008.
func armPython(t *testing.T, function []uint32) []byte {
	t.Helper()
	var code []byte
	for _, w := range function {
		code = binary.LittleEndian.AppendUint32(code, w)
	}
	names := "\x00" + keyFunction + "\x00_PyRuntime\x00"
	const header, segment, section, symbol = 64, 56, 64, 24
	symbols := []elf.Sym64{
		{},
		{Name: 1, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), Shndx: 1, Value: 0x1000, Size: uint64(len(code))},
		{Name: uint32(len(keyFunction)) + 2, Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Shndx: 1, Value: 0x2008, Size: 8},
	}
	at := uint64(header + segment)
	table := at + uint64(len(code))
	texts := table + uint64(len(symbols))*symbol
	sections := texts + uint64(len(names))
	var b bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
			Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_AARCH64), Version: uint32(elf.EV_CURRENT), Phoff: header, Shoff: sections,
			Ehsize: header, Phentsize: segment, Phnum: 1, Shentsize: section, Shnum: 3, Shstrndx: 2,
		},
		elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: at, Vaddr: 0x1000, Filesz: uint64(len(code)), Memsz: 0x2000},
		code, symbols, []byte(names),
		[]elf.Section64{
			{},
			{Type: uint32(elf.SHT_DYNSYM), Off: table, Size: uint64(len(symbols)) * symbol, Link: 2, Info: 1, Entsize: symbol},
			{Type: uint32(elf.SHT_STRTAB), Off: texts, Size: uint64(len(names))},
		},
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestTheProfilerReadsCodeWithTheRightKey(t *testing.T) {
	const at = 64 + 56
	adrp, add, branch := uint32(0xb0000000), uint32(0x91002000), uint32(0x14000100) // adrp x0, 2000; add x0, x0, #8
	for _, c := range []struct {
		last uint32
		want string // as the profiler decodes it, beside _PyRuntime
	}{
		{0xb9426400, "LDR W0, [X0,#612]"},  // ldr w0, [x0, #612]
		{0x91096000, "ADD X0, X0, #0x258"}, // add x0, x0, #600
	} {
		file := armPython(t, []uint32{adrp, add, c.last, branch})
		got := make([]byte, 12)
		if _, err := relocate(inMemory{bytes.NewReader(file)}).ReadAt(got, at); err != nil {
			t.Fatal(err)
		}
		first, _ := arm64asm.Decode(got)
		second, _ := arm64asm.Decode(got[4:])
		if first.String() != c.want || second.Op != arm64asm.B || !bytes.Equal(got[8:], file[at+8:at+12]) {
			t.Errorf("%v; %v; %x, want %s and a branch", first, second, got[8:], c.want)
		}
	}
	file := armPython(t, []uint32{adrp, 0xf943d400, 0x9117c000, branch}) // ldr x0, [x0, #1960]: unknown
	got := make([]byte, 16)
	if _, err := relocate(inMemory{bytes.NewReader(file)}).ReadAt(got, at); err != nil || !bytes.Equal(got, file[at:at+16]) {
		t.Errorf("code that cannot be followed became %x, %v", got, err)
	}
}
