// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/cudaapi"
)

// record is a mapping as the iterator writes it.
func record(pid uint32, name string, program, layout uint8) []byte {
	r := bpf.MappedFile{Pid: pid, Device: 8<<20 | 1, Inode: uint64(pid)<<8 | uint64(len(name)), Start: 0x7f00, End: 0x8f00}
	r.Program, r.Layout = program, layout
	copy(r.Name[:], name)
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))...)
}

func TestAScanListsCUDAProcessesWithTheirProgramsAndLayouts(t *testing.T) {
	raw := slices.Concat(
		record(3, "python3.12", 1, 0), record(3, "libcudart.so.12", 0, 0), record(3, "libm.so.6", 0, 0), record(3, "", 0, 1),
		record(4, "bash", 1, 0), record(4, "", 0, 1), // no CUDA
		record(5, "python3.12", 1, 0), record(5, "libc10.so", 0, 0), // PyTorch on the CPU
		record(6, "libcuda.so.1\x1b[31m", 0, 0), record(6, "libc10.so", 0, 0),
	)
	found, err := readScan(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range found.list {
		got = append(got, fmt.Sprint(l.PID, " ", l.Layer, " ", l.Program, " ", l.Name, " ", l.Path))
	}
	want := []string{
		"3 0 true python3.12 /proc/3/map_files/7f00-8f00", "3 0 false libcudart.so.12 /proc/3/map_files/7f00-8f00",
		"6 1 false libcuda.so.1[31m /proc/6/map_files/7f00-8f00", "6 2 false libc10.so /proc/6/map_files/7f00-8f00",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if pids := slices.Sorted(maps.Keys(found.layouts)); !slices.Equal(pids, []uint32{3, 4}) {
		t.Errorf("layouts of processes %v", pids)
	}
	if _, err := readScan(bytes.NewReader(raw[:len(raw)-1])); err == nil {
		t.Error("a record that was cut short is not an error")
	}
}

func TestLibrariesAreKnownByTheirNames(t *testing.T) {
	for name, want := range map[string]cudaapi.Layer{
		"libcuda.so.1": cudaapi.Driver, "libcuda.so.550.54.14": cudaapi.Driver, "libcudart.so.12": cudaapi.Runtime,
		"libcudart-80664282.so.10.2": cudaapi.Runtime, "libc10.so": cudaapi.Torch,
	} {
		if got, ok := LayerOf(name); !ok || got != want {
			t.Errorf("%s: layer %d, %v, want %d", name, got, ok, want)
		}
	}
	for _, name := range []string{"libcudadebugger.so.1", "libcudnn.so.9", "libc10_cuda.so", "xlibcuda.so", ""} {
		if got, ok := LayerOf(name); ok {
			t.Errorf("%s: layer %d, want none", name, got)
		}
	}
}
