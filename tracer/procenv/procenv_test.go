// SPDX-License-Identifier: Apache-2.0

package procenv

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/elffile"
)

func TestLookupReturnsFirstMatchLikeGetenv(t *testing.T) {
	variables := []string{"", "RANK", "RANKS=2", "RANK=1", "RANK=5", "EMPTY=", "X=a=b"}
	for _, c := range []struct {
		name, want string
		ok         bool
	}{
		{"RANK", "1", true}, {"EMPTY", "", true}, {"X", "a=b", true}, {"RAN", "", false}, {"", "", false},
	} {
		if got, ok := Lookup(variables, c.name); got != c.want || ok != c.ok {
			t.Errorf("%q: got %q, %v", c.name, got, ok)
		}
	}
}

func TestSplitDropsTruncatedString(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"", []string{}},
		{"A=1\x00B=2\x00", []string{"A=1", "B=2"}},
		{"A=1\x00B=2", []string{"A=1"}},
		{"A=1\x00\x00\x00B=\x00", []string{"A=1", "B="}},
		{"A=" + strings.Repeat("a", maxVariable) + "\x00B=2\x00", []string{"B=2"}},
	} {
		if got := split([]byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%.20q: got %.20q", c.text, got)
		}
	}
}

// layout is a simulated memory: the variable, the array, then the strings.
type layout struct {
	memory []byte
	reads  int
	change func(*layout) // before each read
}

const variableAt, arrayAt = 0x10000, 0x10010

func layOut(variables ...string) *layout {
	l := &layout{memory: make([]byte, 16+8*(len(variables)+1))}
	l.put(variableAt, arrayAt)
	for i, v := range variables {
		l.put(arrayAt+8*uint64(i), variableAt+uint64(len(l.memory)))
		l.memory = append(append(l.memory, v...), 0)
	}
	return l
}

func (l *layout) put(address, value uint64) {
	binary.LittleEndian.PutUint64(l.memory[address-variableAt:], value)
}

func (l *layout) readPage(address uint64, page []byte) error {
	l.reads++
	if l.change != nil {
		l.change(l)
	}
	if address < variableAt || address >= variableAt+uint64(len(l.memory)) {
		return unix.EFAULT
	}
	clear(page[copy(page, l.memory[address-variableAt:]):])
	return nil
}

func TestReadKeepsItsLimits(t *testing.T) {
	long := "A=" + strings.Repeat("a", maxVariable-2)
	numbered := make([]string, maxVariables)
	for i := range numbered {
		numbered[i] = fmt.Sprintf("V%d=%d", i, i)
	}
	for _, c := range []struct {
		about string
		in    []string
		want  []string
		err   error
	}{
		{"none", []string{}, []string{}, nil},
		{"some", []string{"A=1", "", "B=", "C", "=D"}, []string{"A=1", "B="}, nil},
		{"the longest", []string{long, "B=2"}, []string{long, "B=2"}, nil},
		{"longer", []string{long + "a", "B=2"}, []string{"B=2"}, nil},
		{"the most", numbered, numbered, nil},
		{"more", append(slices.Clone(numbered), "X=1"), nil, errLarge},
		{"the largest", slices.Repeat([]string{long}, maxTotal/maxVariable), slices.Repeat([]string{long}, maxTotal/maxVariable), nil},
		{"larger", append(slices.Repeat([]string{long}, maxTotal/maxVariable), "B=2"), nil, errLarge},
	} {
		got, err := read(layOut(c.in...), variableAt)
		if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%s: got %d variables, %v", c.about, len(got), err)
		}
	}
}

func TestReadRejectsInvalidEnvironments(t *testing.T) {
	for _, c := range []struct {
		about          string
		address, value uint64
		want           error
	}{
		{"not set up", variableAt, 0, errUnset},
		{"array nowhere", variableAt, 8, unix.EFAULT},
		{"string nowhere", arrayAt, 8, unix.EFAULT},
		{"string at the top", arrayAt + 8, 1<<64 - 1, unix.EFAULT},
	} {
		l := layOut("A=1", "B=2")
		l.put(c.address, c.value)
		if got, err := read(l, variableAt); got != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: got %q, %v", c.about, got, err)
		}
	}
	l := layOut("A=1")
	l.put(variableAt, arrayAt+1)
	if got, err := read(l, variableAt); err == nil {
		t.Errorf("odd array: got %q", got)
	}
}

func TestReadRetriesWhenTheEnvironmentChanges(t *testing.T) {
	l := layOut("A=1", "B=2")
	l.change = func(l *layout) {
		if l.reads == 2 { // the second read of the array
			l.put(arrayAt+8, 0)
		}
	}
	if got, err := read(l, variableAt); !slices.Equal(got, []string{"A=1"}) || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	l = layOut("A=1", "B=2")
	l.change = func(l *layout) { // an array that was just freed
		l.put(arrayAt, variableAt)
		if l.reads > 2 {
			l.put(arrayAt, arrayAt+24)
		}
	}
	if got, err := read(l, variableAt); !slices.Equal(got, []string{"A=1", "B=2"}) || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	l = layOut("A=1", "B=2")
	l.change = func(l *layout) { l.put(arrayAt+8, variableAt+uint64(l.reads)) }
	if got, err := read(l, variableAt); got != nil || !errors.Is(err, errChanged) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestProgramAndCLibraryAreFoundInMaps(t *testing.T) {
	const maps = `55550000-55551000 r--p 00000000 fd:01 10   /usr/bin/prog ram
55551000-55552000 r-xp 00001000 fd:01 10   /usr/bin/prog ram
55553000-55554000 rw-p 00000000 00:00 0    [heap]
7f000000-7f001000 r--p 00000000 fd:01 12   /tmp/libc.so.6 (deleted)
7f100000-7f102000 r-xp 00028000 fd:01 11   /lib/libc-2.31.so (deleted)
7f200000-7f202000 r-xp 00028000 fd:01 13   /lib/libc.so.6
`
	program, libc, err := parseMaps(strings.NewReader(maps), 0x55550040)
	if err != nil || program == nil || libc == nil || program.Start != 0x55551000 || program.End != 0x55552000 || program.Offset != 0x1000 ||
		libc.Start != 0x7f100000 || libc.End != 0x7f102000 || libc.Offset != 0x28000 {
		t.Errorf("got %+v, %+v, %v", program, libc, err)
	}
	if program, libc, _ := parseMaps(strings.NewReader("[vdso]\nx-y r-xp 0 0:0 1 libc.so.6\n"), 1); program != nil || libc != nil {
		t.Errorf("got %+v, %+v", program, libc)
	}
}

func TestExecutableSegmentLocatesTheLibrary(t *testing.T) {
	segments := []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Off: 0, Vaddr: 0x400000},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: 0x10123, Vaddr: 0x430123},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: 0x40123, Vaddr: 0x480123},
	}
	for _, c := range []struct {
		offset, want uint64
		ok           bool
	}{
		{0x10000, 0x10000000 - 0x430000, true}, {0x40000, 0x10000000 - 0x480000, true}, {0, 0, false}, {0x20000, 0, false},
	} {
		bias, err := (&mapping{Start: 0x10000000, Offset: c.offset}).bias(segments, 4096)
		if bias != c.want || (err == nil) != c.ok {
			t.Errorf("offset %#x: got %#x, %v", c.offset, bias, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(layOut("A=1", "CUDA_VISIBLE_DEVICES=0,1", "").memory)
	f.Add(layOut(strings.Repeat("x", 5000), "B").memory)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, memory []byte) {
		variables, err := read(&layout{memory: memory}, variableAt)
		total := 0
		for _, v := range variables {
			if total += len(v); len(v) > maxVariable || strings.Contains(v, "\x00") {
				t.Errorf("variable %.100q", v)
			}
		}
		if total > maxTotal || len(variables) > maxVariables || (variables == nil) != (err != nil) {
			t.Errorf("%d variables, %d bytes, %v", len(variables), total, err)
		}
	})
}

func FuzzLibrary(f *testing.F) {
	program, err := os.ReadFile(build(f, "-no-pie", "-fno-pie", "-s"))
	if err != nil {
		f.Fatal(err)
	}
	open := func(file []byte) (*elffile.File, error) {
		return elffile.Open(bytes.NewReader(file), uint64(len(file)), elffile.Native())
	}
	if l, err := open(program); err != nil {
		f.Fatal(err)
	} else if _, err := variable(l); err != nil {
		f.Fatal(err)
	}
	f.Add(program)
	f.Fuzz(func(t *testing.T, file []byte) {
		if l, err := open(file); err == nil {
			variable(l)
		}
	})
}

func FuzzMaps(f *testing.F) {
	f.Add("55550000-55551000 r-xp 00000000 fd:01 10   /lib/libc.so.6\n", uint64(0x55550000))
	f.Fuzz(func(t *testing.T, maps string, headers uint64) {
		parseMaps(strings.NewReader(maps), headers)
	})
}
