// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/report"
	reportjson "github.com/vramprof/vramprof/report/json"
	reportprofile "github.com/vramprof/vramprof/report/profile"
	reporttext "github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// said wants every output that a person may look at to say something, and returns the losses of the
// JSON.
func (m *machine) said(s *ledger.Snapshot, want string) reportjson.LossesReport {
	m.t.Helper()
	var text, sites, page, heap bytes.Buffer
	for _, err := range []error{
		reporttext.WriteSummary(&text, s, m, report.Options{}, reporttext.Screen{Width: 1000}),
		reporttext.WriteLeaks(&sites, s, m, report.Options{Top: 10}, reporttext.Screen{Width: 1000}),
		reportjson.WriteLeaks(&page, s, m, report.Options{Top: 10}),
		reportprofile.Write(&heap, s, m),
	} {
		if err != nil {
			m.t.Fatal(err)
		}
	}
	p, err := profile.Parse(&heap)
	if err != nil {
		m.t.Fatal(err)
	}
	var r reportjson.LeaksReport
	if err := json.Unmarshal(page.Bytes(), &r); err != nil {
		m.t.Fatal(err)
	}
	for name, text := range map[string]string{
		"summary": text.String(), "leaks": sites.String(), "comments of the profile": strings.Join(p.Comments, "\n"),
		"notes and warnings of the JSON": strings.Join(append(r.Notes, r.Warnings...), "\n"),
	} {
		if !strings.Contains(text, want) {
			m.t.Errorf("the %s do not say %q:\n%s", name, want, text)
		}
	}
	return r.Losses
}

// TestFullMaps makes each map of the kernel half small, and then too small. The targets check their
// own results.
func TestFullMaps(t *testing.T) {
	for _, c := range []struct {
		name    string
		entries map[string]uint32
		test    func(*testing.T, *machine)
	}{
		{"events", map[string]uint32{"events": 4096}, testFullEvents},
		{"stack events", map[string]uint32{"stack_events": 4096}, testFullStackEvents},
		{"stacks and walks", map[string]uint32{"stacks": 64, "table_requests": 1}, testFullStacks},
		{"threads and processes", map[string]uint32{"threads": 8, "processes": 2}, testFullThreads},
		{"tensors", map[string]uint32{"blocks": 16, "tensor_devices": 1}, testFullTensors},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, 2)
			if c.name == "tensors" {
				m.keepTorch("2.6")
			}
			m.trace(func(config *Config) { config.entries, config.Sample = c.entries, 0 })
			c.test(t, m)
		})
	}
}

func testFullEvents(t *testing.T, m *machine) {
	const n = 20_000
	p := m.start(nil, m.program("alloc_c"), m.file(fmt.Sprintf("malloc k 1\nready\nwait\nrepeat %d\nmalloc a 4096\nfree a\nend\n", n)))
	p.ready()
	m.loaded(p.pid())
	before := m.snapshot().Stats
	p.end()
	m.ended(p) // without its event
	s := m.snapshot()
	lost, booked := s.Stats.Lost-before.Lost, s.Stats.Events-before.Events
	if lost == 0 || lost+booked < 2*n || lost+booked > 2*n+10 {
		t.Errorf("%d events are lost and %d booked, of %d", lost, booked, 2*n)
	}
	if l := m.said(s, "events were lost because their process had used its share of the buffers"); l.LostEvents != s.Stats.Lost {
		t.Errorf("the JSON has %d lost events, the books %d", l.LostEvents, s.Stats.Lost)
	}
	checkReasons(t, s)
}

// checkReasons wants each lost event to have a reason.
func checkReasons(t *testing.T, s *ledger.Snapshot) {
	t.Helper()
	var sum uint64
	for _, n := range s.Stats.LostFor {
		sum += n
	}
	if sum != s.Stats.Lost {
		t.Errorf("%d events are lost for the reasons %v", s.Stats.Lost, s.Stats.LostFor)
	}
}

// ended waits until the tracer has noticed the end of a process.
func (m *machine) ended(p *program) {
	m.t.Helper()
	m.eventually("the end of the process is noticed", func() bool {
		return !m.table.IsKnown(p.pid())
	})
}

// paths allocates from so many stacks, at most 1000, ten times each.
func (m *machine) paths(n int, more ...string) *program {
	p := m.start(more, m.program("bench_c"), "cudart", "5", fmt.Sprint(10*n), "--paths", fmt.Sprint(n), "--wait", "--live", "1")
	p.ready()
	m.loaded(p.pid())
	return p
}

func testFullStackEvents(t *testing.T, m *machine) {
	p := m.paths(1000)
	p.end()
	s := m.snapshot()
	if s.Stats.Lost != 0 || s.Stats.NoStack == 0 {
		t.Errorf("%d events are lost, %d have no stack", s.Stats.Lost, s.Stats.NoStack)
	}
	if l := m.said(s, "have no stack"); l.WithoutStack != s.Stats.NoStack {
		t.Errorf("the JSON has %d without a stack, the books %d", l.WithoutStack, s.Stats.NoStack)
	}
}

func testFullStacks(t *testing.T, m *machine) {
	var full bpf.SentStacks // by stacks that nobody has
	for i := range full.Hash {
		full.Hash[i] = ^uint64(i)
	}
	for set := range m.coll.Maps["stacks"].MaxEntries() {
		if err := m.coll.Maps["stacks"].Put(set, &full); err != nil {
			t.Fatal(err)
		}
	}
	p := m.paths(500)
	p.end()
	s := m.snapshot()
	checkLosses(t, s) // it costs time only: stacks are sent again, and walked again
	_, index := processOf(t, s, p.pid())
	whole := 0
	for _, x := range s.Sites {
		if frames := m.Stack(x.Stack); x.Process == index && len(frames) > 3 && !frames[len(frames)-1].Mark {
			whole++
		}
	}
	if whole < 500 {
		t.Errorf("%d whole stacks, want 500", whole)
	}
}

func testFullThreads(t *testing.T, m *machine) {
	p := m.script("alloc_c", nil, "malloc k 1", "ready", "wait", "threads 40", "malloc a 4096", "sleep 500", "end", "print done", "wait")
	p.ready()
	m.loaded(p.pid())
	others := []*program{m.script("alloc_c", nil, "malloc b 1", "ready", "wait"), m.script("alloc_c", nil, "malloc b 1", "ready", "wait")}
	for _, o := range others {
		o.ready()
	}
	p.next()
	p.expect("done")
	s := m.snapshot()
	_, index := processOf(t, s, p.pid())
	var booked uint64
	for _, x := range s.Sites {
		if x.Process == index {
			booked += x.AllocObjects
		}
	}
	if s.Stats.Lost < 41-booked || s.Stats.Lost == 0 {
		t.Errorf("%d events are lost, %d of 41 allocations booked", s.Stats.Lost, booked)
	}
	m.said(s, "events were lost because tables of threads or allocators were full")
	checkReasons(t, s)
	m.said(s, "is not followed: ")
	p.end()
	for _, o := range others {
		o.end()
	}
	m.ended(others[1]) // it had no room, so that the kernel says nothing
}

func testFullTensors(t *testing.T, m *machine) {
	p := m.follow("2.6", nil, "alloc a 1M", "live 20000 512", "alloc b 1M 1", "totals", "wait")
	totals := p.totals()
	s := m.snapshot()
	got := tensorsOf(t, s, p.pid())
	if len(got) != 1 || s.Stats.Lost == 0 {
		t.Errorf("devices %v, %d events lost, want one device and the rest lost", maps.Collect(maps.All(got)), s.Stats.Lost)
	}
	for device, x := range got {
		if x.Allocated != totals[device].Allocated || x.LiveObjects >= totals[device].Live || x.Older == 0 {
			t.Errorf("device %d: the books have %+v, the allocator %+v", device, x, totals[device])
		}
	}
	m.said(s, "has more live tensors on cuda:0 than can be followed")
	m.said(s, "lost because")
	p.end()
}
