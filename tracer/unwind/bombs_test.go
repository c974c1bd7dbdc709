// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
)

// withSection returns a library in which a section has another name and content.
func withSection(t *testing.T, old, name string, content []byte) []byte {
	t.Helper()
	data, err := os.ReadFile("../../symbolize/testdata/elf/dwarf5.so")
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	const header, offsetAt, sizeAt = 64, 24, 32
	headers := binary.LittleEndian.Uint64(data[0x28:])
	put := func(section int, content []byte) {
		at := headers + header*uint64(section)
		binary.LittleEndian.PutUint64(data[at+offsetAt:], uint64(len(data)))
		binary.LittleEndian.PutUint64(data[at+sizeAt:], uint64(len(content)))
		data = append(data, content...)
	}
	for i, s := range file.Sections {
		if s.Name != old {
			continue
		}
		strings := int(binary.LittleEndian.Uint16(data[0x3e:]))
		names, err := file.Sections[strings].Data()
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint32(data[headers+header*uint64(i):], uint32(len(names)))
		put(strings, append(append(names, name...), 0))
		put(i, content)
		return data
	}
	t.Fatal("no section ", old)
	return nil
}

// entry is a CIE or FDE.
func entry(id uint32, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(4+len(body)))
	return append(binary.LittleEndian.AppendUint32(b, id), body...)
}

// frames is .eh_frame or .debug_frame with a CIE that has an expression of so many bytes.
func frames(expression int, debug bool) []byte {
	rules := binary.AppendUvarint([]byte("\x01\x00\x01\x78\x10\x0f"), uint64(expression))
	rules = append(rules, bytes.Repeat([]byte{0x30}, expression)...)
	if debug {
		return append(entry(1<<32-1, rules), entry(0, make([]byte, 20))...)
	}
	cie := entry(0, rules)
	return append(cie, entry(uint32(len(cie)+4), make([]byte, 20))...)
}

// goTables is .gopclntab with functions that share one table of so many steps.
func goTables(functions, steps int) []byte {
	const head = 72
	pcs := append([]byte{0, 2, 1, 0}, bytes.Repeat([]byte{2, 1, 1, 1}, steps/2)...) // pcfile at 1, pcsp at 4
	pcs = append(pcs, 0)
	at := []uint64{1, 0x1000, head, head + 8, head + 12, head + 16, head + 16 + uint64(len(pcs))}
	b := append(binary.LittleEndian.AppendUint32(nil, 0xfffffff1), 0, 0, 1, 8)
	b = binary.LittleEndian.AppendUint64(b, uint64(functions))
	for _, x := range at {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	b = append(b, "a.b.c.d\x00"+"\x00\x00\x00\x00"+"x.s\x00"...)
	b = append(b, pcs...)
	for range functions + 1 {
		b = append(binary.LittleEndian.AppendUint32(b, 0), binary.LittleEndian.AppendUint32(nil, uint32(8*(functions+1)))...)
	}
	for _, x := range []uint32{0, 0, 0, 0, 4, 1, 0, 0, 0} { // pc, name, args, frame, pcsp, pcfile, pcln, data, unit
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// withoutSection is a library whose .eh_frame only .eh_frame_hdr shows, in another form.
func withoutSection(t *testing.T, form byte) []byte {
	t.Helper()
	data := withSection(t, ".eh_frame", ".another", frames(maxEntry, false))
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	data[file.Section(".eh_frame_hdr").Offset+1] = form
	return data
}

// TestOtherFormsOfTheHeaderAreRefused: the profiler reads them, and finds tables that nobody
// checked.
func TestOtherFormsOfTheHeaderAreRefused(t *testing.T) {
	for form, want := range map[byte]error{0x1b: nil, 0x03: errForm, 0x3b: errForm, 0x00: errForm, 0xff: errForm} {
		data := withoutSection(t, form)
		file, err := pfelf.NewFileOwned(newBoundedFile(inMemory{bytes.NewReader(data)}, int64(len(data)), 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkFrames(file); !errors.Is(err, want) {
			t.Errorf("form %#x: %v, want %v", form, err, want)
		}
		file.Close()
	}
}

func TestTablesThatGrowAreRefused(t *testing.T) {
	for _, c := range []struct {
		about string
		file  []byte
		want  error
	}{
		{"a long expression", withSection(t, ".eh_frame", ".eh_frame", frames(maxEntry, false)), errBomb},
		{"a short expression", withSection(t, ".eh_frame", ".eh_frame", frames(1000, false)), nil},
		{"a long expression in .debug_frame", withSection(t, ".comment", ".debug_frame", frames(maxEntry, true)), errBomb},
		{"functions of Go with one table", withSection(t, ".comment", ".gopclntab", goTables(400, 50_000)), errBomb},
		{"a function of Go with a table", withSection(t, ".comment", ".gopclntab", goTables(1, 50_000)), nil},
	} {
		ref := pfelf.NewReferenceWithOpenFunc("/usr/lib/lib.so", guarded{}, func() (*pfelf.File, error) {
			return pfelf.NewFileOwned(newBoundedFile(inMemory{bytes.NewReader(c.file)}, int64(len(c.file)), 0))
		})
		var err error
		used := allocated(func() {
			_, err = fencedTables{checkedTables{elfunwindinfo.NewStackDeltaProvider()}}.GetIntervalDataForFile(ref)
		})
		ref.Close()
		if (err != nil) != (c.want != nil) || used > 32<<20 {
			t.Errorf("%s: %v, %d bytes, want %v", c.about, err, used, c.want)
		}
	}
}

// A bomb is none of the files that compilers write.
func TestRealFilesAreNoBombs(t *testing.T) {
	list := []string{"/proc/self/exe"}
	for _, pattern := range []string{"/usr/lib/x86_64-linux-gnu/*.so*", "/usr/bin/python3.*[0-9]"} {
		more, _ := filepath.Glob(pattern)
		list = append(list, more[:min(len(more), 100)]...)
	}
	for _, path := range list {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		file, err := pfelf.NewFileOwned(newBoundedFile(f, 0, 0))
		if err != nil {
			continue
		}
		if err := checkFrames(file); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := elfunwindinfo.NewGopclntab(file); errors.Is(err, errBomb) {
			t.Errorf("%s: %v", path, err)
		}
		file.Close()
	}
}
