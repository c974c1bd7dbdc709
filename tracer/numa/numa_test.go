// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"maps"
	"math/bits"
	"os"
	"runtime"
	"slices"
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
	arm := "ffffffc008000000 T _text\nffffffc0095f9408 D memstart_addr\n"
	zones := "Node 0, zone DMA\n        spanned  4095\n  start_pfn: 1\nNode 1, zone Normal\n        spanned  1048576\n        present  1000000\n  start_pfn:           262144\n" +
		"Node 1, zone Movable\n        spanned  0\n"
	for name, c := range map[string]struct {
		symbols, flags, arch string
		want                 []bpf.DirectMap
		err                  error
	}{
		"randomized":        {symbols, "fpu la57", "amd64", []bpf.DirectMap{{Levels: 5, Symbol: 0xffffffff82a0b6c8, End: 0x140000, Start: 0xff11000000000000}}, nil},
		"four levels":       {symbols, "fpu la57x", "amd64", []bpf.DirectMap{{Levels: 4, Symbol: 0xffffffff82a0b6c8, End: 0x140000, Start: 0xffff888000000000}}, nil},
		"not randomized":    {flat, "fpu", "amd64", []bpf.DirectMap{{Levels: 4, End: 0x140000, Start: 0xffff888000000000}}, nil},
		"hidden":            {hidden, "fpu", "amd64", nil, errHidden},
		"arm64, not listed": {symbols, "", "arm64", nil, nil},
		"another processor": {symbols, "", "riscv64", nil, nil},
		"arm64, 4 KiB pages": {arm, "", "arm64", []bpf.DirectMap{
			{Levels: 4, Symbol: 0xffffffc0095f9408, End: 0x140000, Start: 0xffff000000000000, PageBits: 12, Mark: 1<<58 | 1<<11},
			{Levels: 3, Symbol: 0xffffffc0095f9408, End: 0x140000, Start: 0xffffff8000000000, PageBits: 12, Mark: 1<<58 | 1<<11},
			{Levels: 5, Symbol: 0xffffffc0095f9408, End: 0x140000, Start: 0xfff0000000000000, PageBits: 12, Mark: 1<<58 | 1<<11},
			{Levels: 4, Symbol: 0xffffffc0095f9408, End: 0x140000, Start: 0xffff000000000000, PageBits: 12, Mark: 1 << 11},
			{Levels: 3, Symbol: 0xffffffc0095f9408, End: 0x140000, Start: 0xffffff8000000000, PageBits: 12, Mark: 1 << 11},
			{Levels: 5, Symbol: 0xffffffc0095f9408, End: 0x140000, Start: 0xfff0000000000000, PageBits: 12, Mark: 1 << 11},
		}, nil},
	} {
		root := fstest.MapFS{"proc/kallsyms": {Data: []byte(c.symbols)}, "proc/cpuinfo": {Data: []byte("processor\t: 0\nflags\t\t: " + c.flags + "\n")},
			"proc/zoneinfo": {Data: []byte(zones)}}
		got, err := findDirectMaps(root, c.arch, 4<<10)
		if !slices.Equal(got, c.want) || c.err != nil && !errors.Is(err, c.err) || (err != nil) != (c.want == nil) {
			t.Errorf("%s: %+v (%v), want %+v (%v)", name, got, err, c.want, c.err)
		}
	}
}

// The levels of arm64's page tables (Documentation/arch/arm64/memory.rst), by page size and bits.
func TestLevelsOfPageTablesOnARM(t *testing.T) {
	for size, want := range map[int]map[uint32]uint32{
		4 << 10: {52: 5, 48: 4, 39: 3}, 16 << 10: {52: 4, 48: 4, 47: 3, 36: 2}, 64 << 10: {52: 3, 48: 3, 42: 2},
	} {
		got := map[uint32]uint32{}
		for _, m := range armMaps(size) {
			got[uint32(bits.TrailingZeros64(m.Start))] = m.Levels
		}
		if !maps.Equal(got, want) {
			t.Errorf("pages of %d bytes: levels by bits %v, want %v", size, got, want)
		}
	}
}

func TestTheDirectMapOfThisKernelIsFound(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the kernel's addresses need root")
	}
	found, err := findDirectMaps(os.DirFS("/"), runtime.GOARCH, os.Getpagesize())
	if err != nil && !strings.Contains(err.Error(), "CAP_SYSLOG") && !strings.Contains(err.Error(), "lists no memstart_addr") {
		t.Fatal(err)
	}
	for _, m := range found {
		if m.Symbol>>63 == 0 && m.Start>>63 == 0 {
			t.Errorf("%+v is not in the kernel's half", m)
		}
	}
}

// A wrong start of the direct map is found before anything is read by it.
func TestAWrongDirectMapIsRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("BPF programs need root")
	}
	m, err := Prepare(os.DirFS("/"), runtime.GOARCH)
	if err != nil {
		t.Skip(err)
	}
	wrong := map[string]func(m *bpf.DirectMap){
		"levels": func(m *bpf.DirectMap) { m.Levels = 9 - m.Levels },
		"none":   func(m *bpf.DirectMap) { *m = bpf.DirectMap{} },
		"end":    func(m *bpf.DirectMap) { m.End = 1 },
	}
	if runtime.GOARCH == "arm64" {
		wrong["address bits"] = func(m *bpf.DirectMap) { m.Start <<= 1 }
		wrong["page size"] = func(m *bpf.DirectMap) { m.PageBits ^= 12 ^ 14 }
		wrong["mark"] = func(m *bpf.DirectMap) { m.Mark ^= 1 << 58 }
	} else {
		wrong["start"] = func(m *bpf.DirectMap) { m.Symbol, m.Start = 0, m.Start+1<<39 }
	}
	for name, change := range wrong {
		other := m
		change(&other)
		if err := prove(other); err == nil {
			t.Errorf("a wrong direct map is taken: %s", name)
		}
	}
}
