// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/oom"
)

// oomLog collects what Config.OOM is called with; hold keeps it from returning.
type oomLog struct {
	mu   sync.Mutex
	list []oom.Error
	hold sync.Mutex
}

func (l *oomLog) add(o oom.Error) {
	l.hold.Lock() // a test may hold it
	defer l.hold.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, o)
}

func (l *oomLog) of(pid uint32) (list []oom.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.list {
		if o.PID == pid {
			list = append(list, o)
		}
	}
	return list
}

// These share a tracer.
func TestOutOfMemory(t *testing.T) {
	m := newMachine(t, 2)
	m.keepTorch("1.13", "2.6", "2.14")
	log := &oomLog{}
	m.trace(func(c *Config) { c.Sample, c.OOM = 1<<20, log.add })
	t.Run("is told once", func(t *testing.T) { testOOM(t, m.in(t), log) })
	t.Run("in a flood never holds the program up", func(t *testing.T) { testFloodOfOOMs(t, m.in(t), log) })
}

// wantOOM is one call of Config.OOM; with API "torch" its totals must be those of the allocator
// then.
type wantOOM struct {
	api    string
	device int32
	size   uint64
	leaf   string // a function on the stack
}

func testOOM(t *testing.T, m *machine, log *oomLog) {
	const huge = 900 << 30
	torch := func(device int32, site string) wantOOM { return wantOOM{"torch", device, huge, site} }
	cases := map[string]struct {
		script []string
		want   []wantOOM
	}{
		"PyTorch gives up":                    {[]string{"site 3", "oom 900G"}, []wantOOM{torch(0, "site_3")}},
		"on another device":                   {[]string{"alloc b 5M 1", "oom 900G 1"}, []wantOOM{torch(1, "site_0")}},
		"after it flushed its cache":          {[]string{"alloc b 10G", "free b", "oom 900G"}, []wantOOM{torch(0, "site_0")}},
		"PyTorch tries again, and gets it":    {[]string{"alloc b 9G", "free b", "alloc c 10G"}, nil},
		"it gets it, and later it does not":   {[]string{"alloc b 9G", "free b", "alloc c 10G", "site 1", "oom 900G"}, []wantOOM{torch(0, "site_1")}},
		"another library":                     {[]string{"foreign_oom 900G"}, []wantOOM{{"cudaMalloc", 0, huge, "foreign_take"}}},
		"another library, then PyTorch":       {[]string{"foreign_oom 900G", "oom 900G"}, []wantOOM{{"cudaMalloc", 0, huge, "foreign_take"}, torch(0, "site_0")}},
		"in two threads":                      {[]string{"threads 2", "oom 900G", "end"}, []wantOOM{torch(0, "site_0"), torch(0, "site_1")}},
		"nothing fails but what is too large": {[]string{"random 5 2000 2"}, nil},
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		x := cases[name]
		for k, version := range []string{"2.6", []string{"1.13", "2.14"}[i%2]} {
			segments := []string{plain, expandable}[(i/2+k)%2]
			what := fmt.Sprintf("%s, PyTorch %s, %s", name, version, segments)
			script := append(append([]string{"alloc a 1M"}, x.script...), "totals", "ready", "wait")
			p := m.follow(version, []string{segments}, script...)
			totals := p.totals()
			p.ready()
			if slices.Contains(script, "alloc c 10G") && segments == plain && totals[0].Retries == 0 {
				t.Errorf("%s: nothing was tried again", what)
			}
			checkOOMs(t, what, m, m.ooms(log, p.pid(), len(x.want)), x.want, totals)
			p.end()
		}
	}
}

func checkOOMs(t *testing.T, what string, m *machine, got []oom.Error, want []wantOOM, totals map[int32]torchTotals) {
	t.Helper()
	for _, w := range want {
		i := slices.IndexFunc(got, func(o oom.Error) bool {
			return o.API == w.api && o.Device == w.device && o.Size == w.size && m.passes(o.Stack, w.leaf)
		})
		if i < 0 {
			t.Errorf("%s: %+v was not told; told was %+v", what, w, got)
			continue
		}
		o, x := got[i], totals[w.device]
		if w.api != "torch" {
			x = torchTotals{}
		}
		if o.Allocated != x.Allocated || o.Reserved != x.Reserved || o.Time == 0 || !strings.HasPrefix(o.Comm, m.name) {
			t.Errorf("%s: told was %+v, the allocator had %+v", what, o, x)
		}
		got = slices.Delete(got, i, i+1)
	}
	if len(got) != 0 {
		t.Errorf("%s: told was also %+v", what, got)
	}
}

// ooms returns what was told of a process, when that is as much as is wanted, and
// nothing comes after it.
func (m *machine) ooms(log *oomLog, pid uint32, want int) []oom.Error {
	m.t.Helper()
	m.eventsRead()
	for end := time.Now().Add(5 * time.Second); len(log.of(pid)) < want && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	time.Sleep(2 * 100 * time.Millisecond)
	return log.of(pid)
}

func (m *machine) passes(stack uint64, function string) bool {
	for _, f := range m.Stack(stack) {
		if f.Function == function {
			return true
		}
	}
	return false
}

// testFloodOfOOMs: what nobody takes is dropped, and counted.
func testFloodOfOOMs(t *testing.T, m *machine, log *oomLog) {
	const count = 20000
	log.hold.Lock()
	p := m.follow("2.6", nil, "alloc a 1M", "threads 2", fmt.Sprintf("flood 900G %d", count/2), "end", "ready", "wait")
	p.ready()
	m.eventsRead()
	other := m.follow("2.6", nil, "alloc a 1000", "alloc b 5M", "totals", "wait") // all else goes on
	totals := other.totals()
	s := m.snapshot()
	checkTensors(t, "meanwhile", s, other.pid(), totals, false)
	log.hold.Unlock()
	told := m.ooms(log, p.pid(), 1)
	dropped, _ := m.LostOOMs()
	if len(told) == 0 || len(told) > 2*4096 || uint64(len(told))+dropped < count {
		t.Errorf("of %d failures %d were told, %d dropped", count, len(told), dropped)
	}
	checkLosses(t, s)
	t.Logf("%d failures: %d told, %d dropped", count, len(told), dropped)
	other.end()
	p.end()
}
