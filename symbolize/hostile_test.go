// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bytes"
	"compress/zlib"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// TestTruncatedLibrary truncates a library at many offsets: names may be missing but never wrong,
// and nothing fails.
func TestTruncatedLibrary(t *testing.T) {
	lib := compile(t, "inline.cc", "-O2", "-g")
	data, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	address := symbolAddress(t, lib, "train") + 1
	for n := 0; n < len(data); n += len(data)/40 + 1 {
		cut := filepath.Join(t.TempDir(), "libinline.so")
		if err := os.WriteFile(cut, data[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		s, m := added(t, cut, Options{}, "")
		frames := s.AppendFrames(nil, cut, m, address)
		if name := frames[len(frames)-1].Function; name != "train" && name != unnamed(m, address) {
			t.Errorf("cut after %d bytes: got %s", n, name)
		}
		if s.Stats().Rejected == 1 && len(s.Warnings()) != 1 {
			t.Errorf("cut after %d bytes: rejected with no warning", n)
		}
	}
}

// TestLibraryTruncatedAfterwards truncates the file while it is in use.
func TestLibraryTruncatedAfterwards(t *testing.T) {
	lib := compile(t, "inline.cc", "-O2", "-g")
	address := symbolAddress(t, lib, "train") + 1
	s, m := added(t, lib, Options{}, "")
	first := s.AppendFrames(nil, lib, m, address)
	if first[len(first)-1].Function != "train" {
		t.Fatalf("got %+v", first)
	}
	if err := os.Truncate(lib, 100); err != nil {
		t.Fatal(err)
	}
	if got := s.AppendFrames(nil, lib, m, address); describe(got) != describe(first) {
		t.Errorf("an address in use lost its names: %+v", got)
	}
	if got := s.AppendFrames(nil, lib, m, address+1)[0].Function; got != unnamed(m, address+1) {
		t.Errorf("got %s", got)
	}
}

func TestOpenRegularNeverBlocksNorOpensDevices(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/null", t.TempDir(), "/nonexistent", "/dev/tty"} {
		done := make(chan error, 1)
		go func() {
			f, err := untrusted.OpenRegular(path)
			if err == nil {
				f.Close()
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: got error %v", path, err)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s blocks", path)
		}
	}
}

func TestNotELF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libtext\x1b[2J.so")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, m := added(t, path, Options{}, "")
	m.Path += " (deleted)"
	if got := s.AppendFrames(nil, path, m, 0x1234)[0].Function; got != "libtext[2J.so+0x1234" {
		t.Errorf("got %q", got)
	}
	if w := s.Warnings(); len(w) != 1 || strings.Contains(w[0], "\x1b") || s.Stats().Rejected != 1 {
		t.Errorf("warnings %q, stats %+v", w, s.Stats())
	}
}

func TestUnknownFileIsNamedByItsPath(t *testing.T) {
	s := New(Options{})
	for path, want := range map[string]string{
		"/usr/lib/libfoo.so": "libfoo.so+0x10", "": "[unknown]+0x10", "[vdso]": "[vdso]+0x10", "/": "/+0x10",
	} {
		if got := s.AppendFrames(nil, "k", &callstack.Mapping{Path: path}, 0x10)[0].Function; got != want {
			t.Errorf("%q: got %s, want %s", path, got, want)
		}
	}
	if got := s.AppendFrames(nil, "k", nil, 0x10)[0].Function; got != "[unknown]+0x10" {
		t.Errorf("no mapping: got %s", got)
	}
}

// FuzzELF adds damaged libraries. It fails on a timeout, excessive memory, a panic or a frame
// without a name.
func FuzzELF(f *testing.F) {
	seeds, err := filepath.Glob("testdata/elf/*.so")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, seed := range seeds {
		data, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint64(0x300))
	}
	f.Fuzz(func(t *testing.T, data []byte, address uint64) {
		path := filepath.Join(t.TempDir(), "lib.so")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, m := added(t, path, Options{DebugRoots: []string{}, MaxTime: time.Second}, "")
		for _, a := range []uint64{address, address + 0x20} {
			for _, frame := range s.AppendFrames(nil, path, m, a) {
				if frame.Function == "" || frame.Function != untrusted.Clean(frame.Function) {
					t.Errorf("frame named %q", frame.Function)
				}
			}
		}
	})
}

// TestFilesThatUnloadEachOtherEnd alternates between files whose debug information does not fit
// into memory together: each load decompresses it again.
func TestFilesThatUnloadEachOtherEnd(t *testing.T) {
	const inflated = 16 << 20
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(append([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), make([]byte, inflated)...)) // no unit
	z.Close()
	section := append([]byte("ZLIB\x00\x00\x00\x00\x01\x00\x00\x00"), packed.Bytes()...)
	path := filepath.Join(t.TempDir(), "bomb.so")
	if err := os.WriteFile(path, withSections(map[string][]byte{".zdebug_info": section}), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(Options{MaxMemory: inflated, MaxTime: 50 * time.Millisecond})
	defer s.Close()
	m := &callstack.Mapping{Path: path}
	keys := []string{"a", "b"}
	for _, key := range keys {
		s.AddFile(key, m, open(t, path), "")
	}
	loads := 0
	for address := range uint64(300) {
		for _, key := range keys {
			ob := s.objects[identity(key, m)]
			s.AppendFrames(nil, key, m, address)
			if ob.lines != nil {
				loads++
			}
		}
	}
	if loads == 0 || loads > 200 {
		t.Errorf("loaded %d times, want some, at most as many as 50 ms allow", loads)
	}
	if s.Stats().Limited != 1 { // one warning, as both have one name
		t.Errorf("stats %+v, warnings %q", s.Stats(), s.Warnings())
	}
}

func TestChecksumsOfDebugFilesAreLimited(t *testing.T) {
	root, lib, debug, _ := split(t, "-Wl,--build-id=none")
	move(t, debug, filepath.Join(root, "opt", "libplain.debug"))
	for _, room := range []int64{1 << 20, 1} {
		o := Options{}.withDefaults()
		o.checksums.Store(room)
		f := open(t, lib)
		ob, err := o.open(&callstack.Mapping{Path: "/opt/libplain.so"}, f, root)
		if err != nil {
			t.Fatal(err)
		}
		if (ob.debug != nil) != (room > 1) {
			t.Errorf("room for %d bytes: used %v", room, ob.debug != nil)
		}
		ob.close()
	}
}
