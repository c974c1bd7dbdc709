// SPDX-License-Identifier: Apache-2.0

package sums_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/sums"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/html"
	reportjson "github.com/vramprof/vramprof/report/json"
	reportprofile "github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	gpu     = "GPU-a"
	context = 300 << 20 // of each process
	other   = 700 << 20 // of processes that are not traced
	begin   = 10 * reporttest.Second
)

// machine is a random session of two trainings on one GPU, which NVML reports once a second. Its
// truth is what the GPU uses at each moment.
type machine struct {
	w     *capture.Writer
	clock *atomic.Uint64
	rng   *rand.Rand
	jobs  []*job
	truth map[uint64]uint64 // used, by time
}

type job struct {
	pid       uint32
	segments  uint64 // bytes, of 64 MiB each
	tensors   []uint64
	addresses uint64
	began     bool // NVML counts its context
	ended     bool
}

func (j *job) allocated() (sum uint64) { return uint64(len(j.tensors)) * (64 << 20) }

func (m *machine) apply(e ledger.Event) {
	e.Time, e.TID = m.clock.Load(), e.PID
	m.w.Apply(&e)
}

func (m *machine) used() uint64 {
	used := uint64(other)
	for _, j := range m.jobs {
		if used += j.segments; j.began {
			used += context
		}
	}
	return used
}

func (m *machine) told(j *job, e ledger.Event) {
	e.PID, e.Kind, e.Space, e.API = j.pid, ledger.Tensor, ledger.Blocks, "torch"
	e.Told, e.Allocated, e.Live, e.Reserved = ledger.ToldAllocated|ledger.ToldLive, j.allocated(), j.allocated(), j.segments
	m.apply(e)
}

// step has a job allocate or free a tensor, give its cache back, or end.
func (m *machine) step(j *job) {
	switch n := m.rng.IntN(40); {
	case j.ended:
	case n == 0 && m.clock.Load() > begin+8*reporttest.Second && j == m.jobs[0]:
		m.apply(ledger.Event{Op: ledger.Exit, PID: j.pid})
		*j = job{pid: j.pid, ended: true}
	case n < 22:
		if j.addresses++; j.allocated() == j.segments {
			j.segments += 64 << 20
			m.apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: j.pid, Address: j.addresses << 32, Size: 64 << 20, Stack: 3, API: "cudaMalloc"})
			m.tick()
		}
		j.tensors = append(j.tensors, j.addresses<<32)
		m.told(j, ledger.Event{Op: ledger.Alloc, Address: j.addresses << 32, Size: 64 << 20, Stack: 1 + uint64(m.rng.IntN(2))})
	case len(j.tensors) > 0:
		at := m.rng.IntN(len(j.tensors))
		address := j.tensors[at]
		j.tensors = append(j.tensors[:at], j.tensors[at+1:]...)
		m.told(j, ledger.Event{Op: ledger.Free, Address: address})
	}
}

func (m *machine) read() {
	reading := ledger.UsageReading{Time: m.clock.Load()}
	for _, j := range m.jobs {
		if !j.ended {
			j.began = true
			reading.Usages = append(reading.Usages, ledger.Usage{PID: j.pid, UUID: gpu, Bytes: j.segments + context})
		}
	}
	m.w.Tell(ledger.GPUs{{UUID: gpu, Name: "H100", Total: 80 << 30, Used: m.used()}})
	m.w.Tell(reading)
}

// tick notes what the GPU uses now, and goes on in time.
func (m *machine) tick() {
	m.truth[m.clock.Load()] = m.used()
	m.clock.Add(1 + m.rng.Uint64N(40e6))
}

// recorded returns a capture of a random session, and what the GPU used at each moment of it.
func recorded(t *testing.T, seed uint64) (*capture.Reader, map[uint64]uint64) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "session.vram")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m := &machine{clock: new(atomic.Uint64), rng: rand.New(rand.NewPCG(seed, 1)), truth: map[uint64]uint64{}, jobs: []*job{{pid: 7}, {pid: 8}}}
	m.clock.Store(begin)
	if m.w, err = capture.NewWriter(file, capture.Options{Host: "gpu-box", Clock: m.clock.Load, Wall: time.Unix(1e9, 0)}); err != nil {
		t.Fatal(err)
	}
	m.w.SetStacks(reporttest.TorchStacks())
	m.w.Tell(ledger.Begin{Time: begin})
	for _, j := range m.jobs {
		m.w.Tell(ledger.Process{PID: j.pid, Comm: "python3", Begin: begin, Devices: []string{gpu}})
		m.apply(ledger.Event{Op: ledger.Allocator, PID: j.pid})
	}
	m.w.Tell(ledger.Segments{3})
	for next := uint64(begin); m.clock.Load() < begin+12*reporttest.Second; m.tick() {
		if m.clock.Load() >= next {
			m.read()
			next += reporttest.Second
		}
		m.step(m.jobs[m.rng.IntN(2)])
	}
	live := &ledger.Snapshot{Host: "gpu-box", Begin: begin, End: m.clock.Load(), Wall: time.Unix(1e9, 0)}
	if err := m.w.End(live); err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, m.truth
}

// TestAllFormatsOfAMomentAgree: whatever shows a moment of a capture has the same figures, which
// are those of that moment: the header, the parts, the timeline, JSON, profile and page.
func TestAllFormatsOfAMomentAgree(t *testing.T) {
	for seed := range uint64(6) {
		r, truth := recorded(t, seed)
		end, err := r.Snapshot(math.MaxUint64)
		if err != nil {
			t.Fatal(err)
		}
		moments := []uint64{r.End()}
		if at, ok := report.PeakTime(end); ok {
			moments = append(moments, at)
		}
		for at := range truth {
			if at > begin+2*reporttest.Second && len(moments) < 12 {
				moments = append(moments, at)
			}
		}
		for _, at := range moments {
			t.Run(fmt.Sprintf("%d at %s", seed, format.Span(at-begin)), func(t *testing.T) { agree(t, r, at, truth[at]) })
		}
	}
}

func agree(t *testing.T, r *capture.Reader, at, used uint64) {
	l := r.NewLedger()
	tl, sizes, err := timeline.Play(r.Player(), r.Player(), timeline.Moments{Begin: begin, End: at, Steps: 50}, l, func(at uint64) *ledger.Snapshot { return r.SnapshotOf(l, at) })
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Snapshot(at)
	if err != nil {
		t.Fatal(err)
	}
	sums.CheckExact(t, s)
	g := &s.GPUs[0]
	if used != 0 && g.Now() != used { // 0: after the last event
		t.Errorf("the GPU uses %d, the books say %d", used, g.Now())
	}
	usage := map[int]uint64{} // by process, of those that have ended at their end
	var running, all uint64
	parts := s.Parts()
	for i := range parts {
		x := &parts[i]
		usage[x.Process] = report.PartUsage(x)
		if all += usage[x.Process]; s.Processes[x.Process].End == 0 {
			running += usage[x.Process]
		}
	}
	if running+other != g.Now() {
		t.Errorf("running processes use %d, and others %d, of %d", running, uint64(other), g.Now())
	}
	summary, chart := written(t, func(b *bytes.Buffer) error {
		return text.WriteSummary(b, s, r, report.Options{}, text.Screen{})
	}), written(t, func(b *bytes.Buffer) error {
		return text.WriteTimeline(b, s, tl, r, report.Options{}, text.Screen{})
	})
	if want := format.Bytes(g.Now()) + " of 80.0 GiB used"; !strings.Contains(summary, want) {
		t.Errorf("the summary lacks %q:\n%s", want, summary)
	}
	for i := range tl.Rows {
		row := &tl.Rows[i]
		last, p := len(tl.Times)-1, &tl.Processes[row.Process]
		if want := usage[row.Process]; p.End == 0 && row.Usage[last] != want {
			t.Errorf("the timeline ends with %d of %d, the parts have %d", row.Usage[last], p.PID, want)
		}
		_, section, _ := strings.Cut(chart, fmt.Sprintf("python3 [%d]", p.PID))
		if want := format.Bytes(usage[row.Process]) + "\n"; !strings.Contains(section, want) {
			t.Errorf("the timeline does not end with %s:\n%s", want, section)
		}
	}
	inJSON(t, s, r, tl, sizes, g.Now(), all)
	inProfile(t, s, r, all)
	onPage(t, s, r, tl, g.Now(), all)
}

func written(t *testing.T, write func(*bytes.Buffer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func inJSON(t *testing.T, s *ledger.Snapshot, r *capture.Reader, tl *timeline.Timeline, sizes *timeline.Sizes, used, all uint64) {
	t.Helper()
	var v struct {
		Summary struct {
			GPUs []struct {
				Used uint64 `json:"used_bytes"`
			} `json:"gpus"`
			Parts []struct {
				Usage uint64 `json:"usage_bytes"`
			} `json:"parts"`
		}
	}
	out := written(t, func(b *bytes.Buffer) error {
		return reportjson.WriteView(b, reportjson.View{Name: "summary", Snapshot: s, Stacks: r, Timeline: tl, Sizes: sizes}, report.Options{Top: 10})
	})
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, x := range v.Summary.Parts {
		sum += x.Usage
	}
	if len(v.Summary.GPUs) != 1 || v.Summary.GPUs[0].Used != used || sum != all {
		t.Errorf("JSON has %+v and parts of %d, want %d and %d", v.Summary.GPUs, sum, used, all)
	}
}

func inProfile(t *testing.T, s *ledger.Snapshot, r *capture.Reader, all uint64) {
	t.Helper()
	p, err := profile.ParseData([]byte(written(t, func(b *bytes.Buffer) error { return reportprofile.Write(b, s, r) })))
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, x := range p.Sample {
		for i, of := range p.SampleType {
			if of.Type == "inuse_space" {
				sum += x.Value[i]
			}
		}
	}
	if sum != int64(all) {
		t.Errorf("the profile has %d, the parts %d", sum, all)
	}
}

func onPage(t *testing.T, s *ledger.Snapshot, r *capture.Reader, tl *timeline.Timeline, used, all uint64) {
	t.Helper()
	list, err := html.Sections(html.Input{Snapshot: s, Stacks: r, Timeline: tl})
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		GPUs    []struct{ Used uint64 }
		Parts   struct{ Rows []struct{ Usage uint64 } }
		Entries struct {
			Live []int64
			GPU  []int
		}
	}
	if err := json.Unmarshal(html.Join(list), &page); err != nil {
		t.Fatal(err)
	}
	sum, live := uint64(0), int64(0)
	for _, x := range page.Parts.Rows {
		sum += x.Usage
	}
	for i, n := range page.Entries.Live {
		if page.Entries.GPU[i] >= 0 {
			live += n
		}
	}
	if page.GPUs[0].Used != used || sum != all || live != int64(all) {
		t.Errorf("the page has %d used, parts of %d and a graph of %d, want %d and %d", page.GPUs[0].Used, sum, live, used, all)
	}
}
