// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"unicode/utf8"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/interpreter"
	"go.opentelemetry.io/ebpf-profiler/interpreter/python"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"go.opentelemetry.io/ebpf-profiler/support"
	"go.opentelemetry.io/ebpf-profiler/util"
)

// handler accepts an interpreter's updates of the kernel's maps.
type handler struct{ interpreter.EbpfHandler }

func (handler) UpdateInterpreterOffsets(uint16, host.FileID, []util.Range) error { return nil }
func (handler) UpdateProcData(libpf.InterpreterType, libpf.PID, unsafe.Pointer) error {
	return nil
}

var pythonLoader = python.GetLoader(python.Config{})

// reference opens a file as guarded opens a process's file.
func reference(t testing.TB, path string) *pfelf.Reference {
	return pfelf.NewReferenceWithOpenFunc(path, guarded{}, func() (*pfelf.File, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return pfelf.NewFileOwned(relocate(newBoundedFile(f, st.Size(), 0)))
	})
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// inMemory is a file in memory.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// FuzzTables reads the unwind tables of damaged libraries, as a library of any program and as
// Python's. No panic escapes, and rows and memory are in proportion to the file.
func FuzzTables(f *testing.F) {
	seeds, err := filepath.Glob("../../symbolize/testdata/elf/*.so")
	if err != nil || len(seeds) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, seed := range seeds {
		data, err := os.ReadFile(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ref := pfelf.NewReferenceWithOpenFunc("/usr/lib/libpython3.12.so.1.0", guarded{}, func() (*pfelf.File, error) {
			return pfelf.NewFileOwned(relocate(newBoundedFile(inMemory{bytes.NewReader(data)}, int64(len(data)), 0)))
		})
		defer ref.Close()
		var intervals *stackdeltatypes.IntervalData
		var err error
		used := allocated(func() {
			intervals, err = fencedTables{checkedTables{elfunwindinfo.NewStackDeltaProvider()}}.GetIntervalDataForFile(ref)
		})
		if limit := uint64(len(data)*256 + 64<<20); used > limit {
			t.Errorf("%d bytes were allocated for a file of %d", used, len(data))
		}
		if err != nil {
			return
		}
		rows := 0
		for _, b := range intervals.Blocks {
			rows += len(b.Deltas)
		}
		if rows > 64+4*len(data) {
			t.Errorf("%d rows of a file of %d bytes", rows, len(data))
		}
		// A panic here ends the loading of one process, see survive.
		func() {
			defer func() { _ = recover() }()
			_, _ = pythonLoader(handler{}, interpreter.NewLoaderInfo(1, ref, intervals))
		}()
	})
}

// image is the memory of a process that controls all that is read from it: every address is valid.
type image []byte

func (m image) ReadAt(p []byte, off int64) (int, error) {
	if len(m) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	at := int(uint64(off) % uint64(len(m)))
	for n := 0; n < len(p); at = 0 {
		n += copy(p[n:], m[at:])
	}
	return len(p), nil
}

// interpreters lists this machine's Python programs that the profiler supports, with their
// libraries.
func interpreters(t testing.TB) (list []interpreter.Data) {
	var paths []string
	for _, pattern := range []string{"/usr/bin/python3.*[0-9]", "/usr/lib/*/libpython3.*.so.1.0"} {
		found, _ := filepath.Glob(pattern)
		paths = append(paths, found...)
	}
	if path, err := exec.LookPath("python3"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		ref := reference(t, path)
		intervals, err := elfunwindinfo.ExtractELF(ref)
		if err != nil {
			continue
		}
		if data, err := pythonLoader(handler{}, interpreter.NewLoaderInfo(1, ref, intervals)); err == nil && data != nil {
			list = append(list, data)
		}
	}
	return list
}

// FuzzPython decodes Python frames from a memory that the fuzzer controls: code objects, their
// names and line tables, for each version of Python on this machine.
func FuzzPython(f *testing.F) {
	pythons := interpreters(f)
	if len(pythons) == 0 {
		f.Skip("no Python that the profiler knows")
	}
	for which := range pythons {
		f.Add(byte(which), make([]byte, 4096), uint64(0x1000), uint64(3)<<32)
		text := make([]byte, 4096) // pointers everywhere, each to a name
		for i := 0; i < len(text); i += 16 {
			copy(text[i:], "\x40\x00\x00\x00\x00\x00\x00\x00train.py")
		}
		f.Add(byte(which), text, uint64(0x40), uint64(1)<<32)
		f.Add(byte(which), []byte("step\x00\x00\x00\x00"), uint64(8), uint64(7)<<32|0x1234)
	}
	f.Fuzz(func(t *testing.T, which byte, memory []byte, code, at uint64) {
		data := pythons[int(which)%len(pythons)]
		rm := remotememory.RemoteMemory{ReaderAt: image(memory)}
		instance, err := data.Attach(handler{}, 1, 0, rm)
		if err != nil {
			t.Fatal(err)
		}
		var frames libpf.Frames
		used := allocated(func() {
			for _, at := range []uint64{at & 0xffff_ffff_0000_0000, at} { // without a checksum, and with this one
				frame := libpf.EbpfFrame(libpf.NewEbpfFrame(libpf.PythonFrame, 0, 3, 0))
				frame[1], frame[2] = code, at
				_ = instance.Symbolize(frame, &frames, libpf.FrameMapping{})
			}
		})
		if used > 8<<20 {
			t.Errorf("%d bytes were allocated for two frames", used)
		}
		u := Unwinder{}
		for _, x := range frames {
			got := u.frame(x.Value())
			if len(got.Function) > 4096 || len(got.Source) > 4096 || !utf8.ValidString(got.Function+got.Source) || got.FirstLine < 0 {
				t.Errorf("frame %.200q of %.200q, line %d of %d", got.Function, got.Source, got.Line, got.FirstLine)
			}
		}
	})
}

// FuzzWellFormed walks over frames that pass the check as the process manager does, without checks.
func FuzzWellFormed(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0x20, 0x10, 1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0xf0, 0x10})
	f.Fuzz(func(t *testing.T, data []byte) {
		words := make([]uint64, len(data)/8)
		for i := range words {
			words[i] = *(*uint64)(unsafe.Pointer(&data[8*i]))
		}
		ok := wellFormed(words)
		at, frames := 0, 0
		for at < len(words) && libpf.EbpfFrame(words[at:]).Length() > 0 {
			at += int(libpf.EbpfFrame(words[at:]).Length())
			frames++
		}
		if ok != (at == len(words)) || frames > len(words) {
			t.Errorf("%x: well formed %v, but frames end at %d of %d words", words, ok, at, len(words))
		}
	})
}

// FuzzDecode decodes damaged records of the kernel half.
func FuzzDecode(f *testing.F) {
	head := make([]byte, unsafe.Offsetof(support.Trace{}.Frame_data))
	f.Add(head)
	f.Add(append(head, 0, 0, 0, 0, 0, 0, 0x20, 0x10, 1, 2, 3, 4, 5, 6, 7, 8))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var u Unwinder
		u.broken.Store(true) // no process manager: only the checks run
		s, err := u.Decode(raw)
		if err == nil && (len(s.Frames) != 1 || s.Frames[0].Error == "") {
			t.Errorf("got %+v", s)
		}
		if err == nil && len(raw) < len(head) {
			t.Errorf("a record of %d bytes was accepted", len(raw))
		}
	})
}
