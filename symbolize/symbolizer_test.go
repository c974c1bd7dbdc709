// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

func open(tb testing.TB, path string) *os.File {
	tb.Helper()
	f, err := untrusted.OpenRegular(path)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func isClosed(f *os.File) bool {
	_, err := f.Stat()
	return errors.Is(err, fs.ErrClosed) || errors.Is(err, os.ErrClosed)
}

func TestSecondAddClosesItsFile(t *testing.T) {
	const lib = "testdata/elf/dwarf4.so"
	s := New(Options{})
	first, second, byID := open(t, lib), open(t, lib), open(t, lib)
	s.AddFile("key", &callstack.Mapping{Path: lib}, first, "")
	s.AddFile("key", &callstack.Mapping{Path: "/other"}, second, "")
	if isClosed(first) || !isClosed(second) || s.Stats().Files != 1 {
		t.Error("the second file with the same key was kept")
	}
	s.AddFile("key", &callstack.Mapping{Path: lib, BuildID: "abcd"}, byID, "")
	s.AddFile("other key", &callstack.Mapping{Path: lib, BuildID: "abcd"}, open(t, lib), "")
	if isClosed(byID) || s.Stats().Files != 3 {
		t.Error("files with the same build id and different keys share names")
	}
	s.Close()
	if !isClosed(first) || !isClosed(byID) {
		t.Error("Close did not close all files")
	}
	late := open(t, lib)
	if s.AddFile("late", &callstack.Mapping{Path: lib}, late, ""); !isClosed(late) {
		t.Error("a file added after Close was not closed")
	}
}

func TestSharedFileKeepsMappingsApart(t *testing.T) {
	const lib = "testdata/elf/dwarf4.so"
	s := New(Options{})
	defer s.Close()
	a, b := &callstack.Mapping{Path: "/a", BuildID: "abcd"}, &callstack.Mapping{Path: "/b", BuildID: "abcd"}
	s.AddFile("a", a, open(t, lib), "")
	address := symbolAddress(t, lib, "exported") + 1
	for _, m := range []*callstack.Mapping{a, b} {
		for _, f := range s.AppendFrames(nil, "a", m, address) {
			if f.Mapping != m || f.Line == 0 {
				t.Errorf("asked for %s, got %+v", m.Path, f)
			}
		}
	}
}

func TestFramesAppends(t *testing.T) {
	s := New(Options{})
	dst := s.AppendFrames([]callstack.Frame{{Function: "before"}}, "k", &callstack.Mapping{Path: "/lib"}, 1)
	if len(dst) != 2 || dst[0].Function != "before" {
		t.Errorf("got %+v", dst)
	}
}

func TestFilesAreEvictedByAge(t *testing.T) {
	const lib = "testdata/elf/dwarf4.so"
	s := New(Options{MaxFiles: 2})
	defer s.Close()
	m := &callstack.Mapping{Path: lib}
	address := symbolAddress(t, lib, "exported") + 1
	one := open(t, lib)
	s.AddFile("1", m, one, "")
	s.AddFile("2", m, open(t, lib), "")
	s.AppendFrames(nil, "1", m, address)
	s.AddFile("3", m, open(t, lib), "")
	if isClosed(one) || s.Stats().Files != 2 || s.Stats().Evicted != 1 {
		t.Errorf("stats %+v", s.Stats())
	}
	if got := s.AppendFrames(nil, "2", m, address)[0].Function; got != unnamed(m, address) {
		t.Errorf("the evicted file still returns %s", got)
	}
}

// TestTablesAreUnloaded sets a budget smaller than one file's tables: they are unloaded, and read
// again when needed.
func TestTablesAreUnloaded(t *testing.T) {
	const lib = "testdata/elf/dwarf4.so"
	s := New(Options{MaxMemory: 1})
	defer s.Close()
	m := &callstack.Mapping{Path: lib}
	address := symbolAddress(t, lib, "exported") + 1
	for _, key := range []string{"a", "b"} {
		s.AddFile(key, m, open(t, lib), "")
	}
	for range 3 {
		for _, key := range []string{"a", "b"} {
			if f := s.AppendFrames(nil, key, m, address); f[len(f)-1].Function != "exported" || f[0].Line == 0 {
				t.Errorf("got %+v", f)
			}
			if used := s.objects[identity(key, m)].size; s.Stats().Memory != used {
				t.Errorf("%d bytes in total, %d for the file in use", s.Stats().Memory, used)
			}
		}
	}
}

// TestTimeLimit leaves no time for lines: names come from the symbol table, and Stats counts the
// file.
func TestTimeLimit(t *testing.T) {
	lib := manyUnits(t, 1, 2000)
	s, m := added(t, lib, Options{MaxTime: time.Nanosecond}, "")
	f := s.AppendFrames(nil, lib, m, symbolAddress(t, lib, "u0_f1")+1)[0]
	if f.Function != "u0_f1" || f.Line != 0 {
		t.Errorf("got %+v", f)
	}
	if s.Stats().Limited != 1 || len(s.Warnings()) != 1 {
		t.Errorf("stats %+v, warnings %q", s.Stats(), s.Warnings())
	}
}

func TestConcurrentUse(t *testing.T) {
	const lib = "testdata/elf/dwarf5.so"
	s := New(Options{MaxFiles: 3, MaxMemory: 1000})
	m := &callstack.Mapping{Path: lib}
	start := symbolAddress(t, lib, "train")
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 100 {
				key := fmt.Sprint((worker + i) % 5)
				if i%10 == 0 {
					s.AddFile(key, m, open(t, lib), "")
				}
				if len(s.AppendFrames(nil, key, m, start+uint64(i%20))) == 0 {
					t.Error("no frames")
				}
			}
		})
	}
	wg.Wait()
	s.Close()
	if st := s.Stats(); st.Files != 0 {
		t.Errorf("stats %+v", st)
	}
}

// BenchmarkFrames resolves uncached addresses.
func BenchmarkFrames(b *testing.B) {
	for _, source := range []string{"symtab", "dwarf"} {
		b.Run(source, func(b *testing.B) {
			var lib string
			var addresses []uint64
			if source == "symtab" {
				lib = writeLarge(b, 100_000)
				for i := range uint64(1000) {
					addresses = append(addresses, textStart+i*100*functionSize+1)
				}
			} else {
				lib = compile(b, "inline.cc", "-O2", "-g")
				addresses = codeAddresses(b, lib)
			}
			s, m := added(b, lib, Options{}, "")
			s.AppendFrames(nil, lib, m, addresses[0]) // loads the tables
			ob := s.objects[identity(lib, m)]
			var dst []callstack.Frame
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				clear(ob.cache)
				dst = s.AppendFrames(dst[:0], lib, m, addresses[i%len(addresses)])
				i++
			}
		})
	}
}
