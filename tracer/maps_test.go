// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/functions"
)

func TestMapsLinesAreReadWhateverTheirPathsHold(t *testing.T) {
	const exe = "/opt/a program (deleted)"
	for _, c := range []struct {
		line string
		want mappedLibrary // pid and open are the same for all
		ok   bool
	}{
		{"7f00-8f00 r-xp 00001000 fd:01 1234                 /usr/lib/libcuda.so.550.1",
			mappedLibrary{file: fileKey{device: 0xfd<<20 | 1, inode: 1234}, layer: functions.Driver, name: "libcuda.so.550.1"}, true},
		{"7f00-8f00 r-xp 00001000 00:30 99 /a b/libcudart-80664282.so.10.2 (deleted)",
			mappedLibrary{file: fileKey{device: 0x30, inode: 99}, layer: functions.Runtime, name: "libcudart-80664282.so.10.2"}, true},
		{"7f00-8f00 r-xp 00000000 00:30 7 /opt/a program (deleted)", mappedLibrary{file: fileKey{device: 0x30, inode: 7}, program: true, name: "a program"}, true},
		{`7f00-8f00 r-xp 00000000 00:30 7 /tmp/x\0127f00-8f00 r-xp 00000000 00:30 8 /libcuda.so`,
			mappedLibrary{file: fileKey{device: 0x30, inode: 7}, layer: functions.Driver, name: "libcuda.so"}, true}, // one mapping, of one file
		{"7f00-8f00 r--p 00001000 fd:01 1234 /usr/lib/libcuda.so.1", mappedLibrary{}, false},
		{"7f00-8f00 r-xp 00001000 fd:01 0 /usr/lib/libcuda.so.1", mappedLibrary{}, false},
		{"7f00-8f00 r-xp 00000000 00:00 0 [vdso]", mappedLibrary{}, false},
		{"7f00-8f00 r-xp 00000000 00:00 0", mappedLibrary{}, false},
		{"g r-xp 0 fd:01 1234 /libcuda.so", mappedLibrary{}, false},
		{"7f00-8f00 r-xp 0 fd01 1234 /libcuda.so", mappedLibrary{}, false},
		{"", mappedLibrary{}, false},
	} {
		if c.ok {
			c.want.pid, c.want.open = 42, "/proc/42/map_files/7f00-8f00"
		}
		if got, ok := parseMapping(c.line, 42, exe); got != c.want || ok != c.ok {
			t.Errorf("%q: got %+v, %t, want %+v", c.line, got, ok, c.want)
		}
	}
}

func TestReadingAllMapsFindsWhatTheIteratorFinds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := fakecuda.Build(t)
	m := newMachine(t, 1)
	program := m.script("calls_c", []string{"LD_LIBRARY_PATH=" + string(dir)}, "cudaMalloc p 1", "ready", "wait")
	program.ready()
	s, err := openScanner()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.iterator == nil {
		t.Skip("the kernel has no iterator")
	}
	of := func(list []mappedLibrary, err error) (own []mappedLibrary) {
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if l.pid == program.pid() {
				own = append(own, l)
			}
		}
		return own
	}
	read, scanned := of(readAllMaps()), of(s.scan())
	if len(scanned) != 3 || !slices.Equal(read, scanned) {
		t.Errorf("read %+v, the kernel says %+v, want the program and two libraries", read, scanned)
	}
}
