// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"
)

func TestCeilingFollowsTheMachine(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		flag    string
		machine uint64
		want    uint64 // 0: an error
	}{
		{"auto", 64 * gib, 4 * gib},
		{"auto", 8 * gib, 2 * gib},
		{"auto", gib, 512 * mib},
		{"auto", 256 * mib, 192 * mib},
		{"auto", 16 * mib, 128 * mib},
		{"auto", math.MaxInt64, 4 * gib},
		{"1GiB", 256 * mib, gib},
		{"200000000", gib, 200_000_000},
		{"127MiB", gib, 0},
		{"0", gib, 0},
		{"-1", gib, 0},
		{"18446744073709551615", gib, 0},
		{"many", gib, 0},
		{"", gib, 0},
	} {
		if got, err := parse(c.flag, c.machine); got != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%q of %d: got %d, %v; want %d", c.flag, c.machine, got, err, c.want)
		}
	}
}

// groupTree creates the files of cgroups.
func groupTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestTheTightestGroupCounts(t *testing.T) {
	root := groupTree(t, map[string]string{
		"memory.max": "max\n", "a/memory.max": "1000\n", "a/memory.current": "900\n", "a/memory.stat": "anon 5\ninactive_file 300\n",
		"a/b/memory.max":                 "2000\n",
		"memory/x/memory.limit_in_bytes": "500\n",
		"memory/x/memory.usage_in_bytes": "400\n",
		"memory/x/memory.stat":           "inactive_file 1\ntotal_inactive_file 900\n",
		"memory/memory.limit_in_bytes":   "9223372036854771712\n",
		"memory/y/memory.limit_in_bytes": "none",
	})
	for _, c := range []struct {
		groups      string
		limit, used uint64
		ok          bool
	}{
		{"0::/a/b\n", 1000, 600, true},
		{"0::/a\n", 1000, 600, true},
		{"0::/nowhere\n", math.MaxInt64, 0, false},
		{"5:cpu:/x\n4:memory:/x\n0::/\n", 500, 0, true}, // all of it is reclaimable
		{"4:cpu,memory:/x/deeper\n", 500, 0, true},
		{"4:memory:/y\n", math.MaxInt64 - 4095, 0, false},
		{"0::/../../etc\n", math.MaxInt64, 0, false},
		{"", math.MaxInt64, 0, false},
		{"garbage\n:::\n", math.MaxInt64, 0, false},
	} {
		g := groupIn(root, c.groups)
		used, ok := g.used()
		if g.limit != c.limit || used != c.used || ok != c.ok {
			t.Errorf("%q: limit %d, used %d %v; want %d, %d %v", c.groups, g.limit, used, ok, c.limit, c.used, c.ok)
		}
	}
}

func TestAGroupThatOthersFillEndsNothing(t *testing.T) {
	root := groupTree(t, map[string]string{"memory.max": "8000\n", "memory.current": "7500\n", "memory.stat": ""})
	for own, want := range map[uint64]string{100: "", 2000: "vramprof's cgroup uses ", 96 << 20: "vramprof uses "} {
		m := Watch{ceiling: 128 << 20, group: groupIn(root, "0::/\n"), own: func() (uint64, uint64) { return own, 0 }}
		if got, _, _ := m.look(); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%d bytes: got %q, want %q", own, got, want)
		}
	}
	if own, mapped := Own(); own < 1<<18 || own > 1<<32 || mapped < 1<<18 || mapped > 1<<32 {
		t.Errorf("this process has %d bytes and %d of files", own, mapped)
	}
}

func TestWhereLittleMemoryIsLeftOneLooksMoreOften(t *testing.T) {
	small := groupTree(t, map[string]string{"memory.max": "1000000000\n", "memory.current": "800000000\n", "memory.stat": ""})
	for _, c := range []struct {
		ceiling, own uint64
		root         string
		want         time.Duration
	}{
		{4 << 30, 1 << 30, t.TempDir(), farTick},
		{4 << 30, 2800 << 20, t.TempDir(), nearTick},
		{512 << 20, 30 << 20, t.TempDir(), nearTick},
		{4 << 30, 30 << 20, small, nearTick},
	} {
		m := Watch{ceiling: c.ceiling, group: groupIn(c.root, "0::/\n"), own: func() (uint64, uint64) { return c.own, 0 }}
		if why, _, got := m.look(); got != c.want || why != "" {
			t.Errorf("%d of %d bytes: in %v, want %v; %s", c.own, c.ceiling, got, c.want, why)
		}
	}
}

func TestMemoryOfABurstGoesBack(t *testing.T) {
	unused := func() uint64 {
		list := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(list)
		return list[0].Value.Uint64() + list[1].Value.Uint64()
	}
	burst := make([]byte, 256<<20)
	for i := range burst {
		burst[i] = 1
	}
	before := unused()
	giveBack() // not unused yet, or too little
	burst = nil
	for range 3 { // the first call may only find that the burst is garbage
		runtime.GC()
		giveBack()
	}
	if after := unused(); before < 256<<20 || after > before-200<<20 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
}

func TestWhereMemoryIsScarceDetailIsLostBeforeTheSession(t *testing.T) {
	for _, c := range []struct {
		own, mapped uint64
		scarce, end bool
	}{
		{100 << 20, 0, false, false},
		{160 << 20, 0, true, false},
		{200 << 20, 0, true, true},
		{100 << 20, 80 << 20, false, false}, // 176 MiB are left beside files and rings
		{110 << 20, 80 << 20, true, false},
		{140 << 20, 80 << 20, true, true},
	} {
		m := Watch{ceiling: 256 << 20, group: groupIn(t.TempDir(), "0::/\n"), own: func() (uint64, uint64) { return c.own, c.mapped }}
		if why, scarce, _ := m.look(); scarce != c.scarce || (why != "") != c.end {
			t.Errorf("%d and %d MiB: scarce %v, %q; want %v, %v", c.own>>20, c.mapped>>20, scarce, why, c.scarce, c.end)
		}
	}
}
