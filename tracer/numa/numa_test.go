// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vramprof/vramprof/bpf"
)

func TestOnlyHostsWithSeveralNodesWithMemoryBalance(t *testing.T) {
	for _, c := range []struct{ memory, online, want string }{
		{"0-1\n", "0-1\n", "0-1"}, {"0,2\n", "0-3\n", "0,2"}, {"0\n", "0-1\n", ""}, {"", "0-1\n", "0-1"}, {"", "0\n", ""}, {"", "", ""},
	} {
		root := fstest.MapFS{"sys/devices/system/node/online": {Data: []byte(c.online)}}
		if c.memory != "" {
			root["sys/devices/system/node/has_memory"] = &fstest.MapFile{Data: []byte(c.memory)}
		}
		if got := Nodes(root); got != c.want {
			t.Errorf("memory on %q, online %q: %q, want %q", c.memory, c.online, got, c.want)
		}
	}
}

func TestTheDirectMapIsFoundByItsSymbol(t *testing.T) {
	symbols := "ffffffff81000000 T startup_64\nffffffff82a0b6c8 D page_offset_base\n"
	hidden := "0000000000000000 T startup_64\n0000000000000000 D page_offset_base\n"
	flat := "ffffffff81000000 T startup_64\n"
	for name, c := range map[string]struct {
		symbols, flags, arch string
		want                 bpf.DirectMap
		err                  error
	}{
		"randomized":     {symbols, "fpu la57", "amd64", bpf.DirectMap{Levels: 5, Symbol: 0xffffffff82a0b6c8, Start: 0xff11000000000000}, nil},
		"four levels":    {symbols, "fpu la57x", "amd64", bpf.DirectMap{Levels: 4, Symbol: 0xffffffff82a0b6c8, Start: 0xffff888000000000}, nil},
		"not randomized": {flat, "fpu", "amd64", bpf.DirectMap{Levels: 4, Start: 0xffff888000000000}, nil},
		"hidden":         {hidden, "fpu", "amd64", bpf.DirectMap{}, errHidden},
		"arm64":          {symbols, "fpu", "arm64", bpf.DirectMap{}, nil},
	} {
		root := fstest.MapFS{"proc/kallsyms": {Data: []byte(c.symbols)}, "proc/cpuinfo": {Data: []byte("processor\t: 0\nflags\t\t: " + c.flags + "\n")}}
		got, err := FindDirectMap(root, c.arch)
		if got != c.want || c.err != nil && !errors.Is(err, c.err) || (err != nil) != (c.want == bpf.DirectMap{}) {
			t.Errorf("%s: %+v (%v), want %+v (%v)", name, got, err, c.want, c.err)
		}
	}
}

func TestTheDirectMapOfThisKernelIsFound(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("the kernel's addresses need root, on x86-64")
	}
	m, err := FindDirectMap(os.DirFS("/"), runtime.GOARCH)
	if err != nil && !strings.Contains(err.Error(), "CAP_SYSLOG") {
		t.Fatal(err)
	}
	if err == nil && m.Symbol>>63 == 0 && m.Start>>63 == 0 {
		t.Errorf("%+v is not in the kernel's half", m)
	}
}

// A wrong start of the direct map is found before anything is read by it.
func TestAWrongDirectMapIsRefused(t *testing.T) {
	if os.Getuid() != 0 || runtime.GOARCH != "amd64" {
		t.Skip("BPF programs need root, and the kernel's layout is that of x86-64")
	}
	m, err := FindDirectMap(os.DirFS("/"), runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	if err := prove(m); err != nil {
		t.Errorf("the right one is refused: %v", err)
	}
	for name, wrong := range map[string]bpf.DirectMap{
		"start":  {Levels: m.Levels, Start: m.Start + 1<<39},
		"levels": {Levels: 9 - m.Levels, Symbol: m.Symbol, Start: m.Start},
		"none":   {},
	} {
		if err := prove(wrong); err == nil {
			t.Errorf("a wrong direct map is taken: %s", name)
		}
	}
}
