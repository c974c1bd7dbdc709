// SPDX-License-Identifier: Apache-2.0

package libraries

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/internal/procmaps"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/cudaapi"
)

func TestMapsLinesAreReadWhateverTheirPathsHold(t *testing.T) {
	const exe = "/opt/a program (deleted)"
	for _, c := range []struct {
		line string
		want Mapped // PID, Address and Path are the same for all
		ok   bool
	}{
		{"7f00-8f00 r-xp 00001000 fd:01 1234                 /usr/lib/libcuda.so.550.1",
			Mapped{File: FileKey{Device: 0xfd<<20 | 1, Inode: 1234}, Layer: cudaapi.Driver, Name: "libcuda.so.550.1"}, true},
		{"7f00-8f00 r-xp 00001000 00:30 99 /a b/libcudart-80664282.so.10.2 (deleted)",
			Mapped{File: FileKey{Device: 0x30, Inode: 99}, Layer: cudaapi.Runtime, Name: "libcudart-80664282.so.10.2"}, true},
		{"7f00-8f00 r-xp 00000000 00:30 7 /opt/a program (deleted)", Mapped{File: FileKey{Device: 0x30, Inode: 7}, Program: true, Name: "a program"}, true},
		{`7f00-8f00 r-xp 00000000 00:30 7 /tmp/x\0127f00-8f00 r-xp 00000000 00:30 8 /libcuda.so`,
			Mapped{File: FileKey{Device: 0x30, Inode: 7}, Layer: cudaapi.Driver, Name: "libcuda.so"}, true}, // one mapping, of one file
		{"7f00-8f00 r--p 00001000 fd:01 1234 /usr/lib/libcuda.so.1", Mapped{}, false},
		{"7f00-8f00 r-xp 00001000 fd:01 0 /usr/lib/libcuda.so.1", Mapped{}, false},
		{"7f00-8f00 r-xp 00000000 00:00 0 [vdso]", Mapped{}, false},
		{"7f00-8f00 r-xp 00000000 00:00 0", Mapped{}, false},
		{"g r-xp 0 fd:01 1234 /libcuda.so", Mapped{}, false},
		{"7f00-8f00 r-xp 0 fd01 1234 /libcuda.so", Mapped{}, false},
		{"", Mapped{}, false},
	} {
		if c.ok {
			c.want.PID, c.want.Address, c.want.Path = 42, 0x7f00, "/proc/42/map_files/7f00-8f00"
		}
		m, parsed := procmaps.Parse(c.line)
		if got, ok := libraryOf(m, 42, 42, exe); ok && !parsed || got != c.want || ok != c.ok {
			t.Errorf("%q: got %+v, %t, want %+v", c.line, got, ok, c.want)
		}
	}
}

func TestProbeAreaIsTheKernels(t *testing.T) {
	for text, want := range map[string]bool{
		"1000-2000 r-xp 00000000 fd:01 12 /bin/x\n7fffffffe000-7fffffffffff --xp 00000000 00:00 0                          [uprobes]\n": true,
		"7fffffffe000-7fffffffffff --xp 00000000 00:00 0 [uprobes]":                                                                     true,
		"1000-2000 r-xp 00000000 fd:01 12 /tmp/[uprobes]\n":                                                                             false,
		"1000-2000 r-xp 00000000 fd:01 12 /tmp/x 00:00 0 [uprobes]\n":                                                                   false,
		`1000-2000 r-xp 00000000 fd:01 12 /tmp/x\0121000-2000 --xp 0 00:00 0 [uprobes]`:                                                 false,
		"1000-2000 rw-p 00000000 00:00 0 [anon:1000-2000 --xp 00000000 00:00 0 uprobes]\n":                                              false,
		"": false,
	} {
		if got := hasProbeArea([]byte(text)); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
}

func TestReadingAllMapsFindsWhatTheIteratorFinds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	fake := fakecuda.Build(t)
	pid := startUser(t, fake)
	s, err := OpenScanner()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.iterator == nil {
		t.Skip("the kernel has no iterator")
	}
	of := func(list []Mapped, err error) (own []Mapped) {
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			if l.PID == pid {
				own = append(own, l)
			}
		}
		return own
	}
	read, scanned := of(readAllMaps()), of(s.Scan())
	if len(scanned) != 3 || !slices.Equal(read, scanned) {
		t.Errorf("read %+v, the kernel says %+v, want the program and two libraries", read, scanned)
	}
}

// startUser starts a program that maps the runtime and the driver, and returns its pid.
func startUser(t *testing.T, fake fakecuda.Dir) uint32 {
	t.Helper()
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("cudaMalloc p 1\nready\nwait\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(fake.Program("calls_c"), script)
	cmd.Env = append(fake.Env(t, 1, 1<<30), "LD_LIBRARY_PATH="+string(fake))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the program is not ready: %q, %v", line, err)
	}
	return uint32(cmd.Process.Pid)
}

// FuzzParseMapping parses lines of /proc/PID/maps, whose paths the process controls.
func FuzzParseMapping(f *testing.F) {
	f.Add("7f00-8f00 r-xp 00001000 fd:01 1234 /usr/lib/libcuda.so.550.1 (deleted)", "/usr/bin/python3")
	f.Add("7f00-8f00 r-xp 00000000 00:00 0", "")
	f.Fuzz(func(t *testing.T, line, exe string) {
		m, _ := procmaps.Parse(line)
		l, ok := libraryOf(m, 7, 7, exe)
		if !ok {
			return
		}
		if l.Layer > cudaapi.Torch || l.File.Inode == 0 || l.Name != untrusted.Clean(l.Name) {
			t.Errorf("%q: %+v", line, l)
		}
	})
}
