// SPDX-License-Identifier: Apache-2.0

// Package watch judges the books of a running session once for all users of verdicts: metrics, page
// and alerts.
package watch

import (
	"maps"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
)

// Verdicts take at most 1/share of a processor, but come once in longest whatever they take.
const (
	share   = 100
	least   = 10 * time.Second // between two
	longest = time.Minute
)

// Watcher judges one snapshot at a time, as often as its share allows. Any goroutine may call its
// methods.
type Watcher struct {
	stacks callstack.Stacks
	judged func(*ledger.Snapshot, *report.Judgement)

	mu     sync.Mutex    // guards what follows
	ready  chan struct{} // closed when the judgement that runs has ended; nil: none runs
	due    time.Time     // of the next
	cost   time.Duration // of the latest
	latest *Verdicts
	failed map[string]uint64 // panics by place
}

// Verdicts are those on one snapshot. They fit later ones of the session and must not be changed.
type Verdicts struct {
	At    uint64 // end of the snapshot, ns
	Lines []Line // of running processes
	GPUs  []GPU  // that running processes use

	advice  []string // as report.Judgement.Advice
	balance []string // as report.Judgement.BalanceTexts
	sites   map[ledger.SiteID]report.SiteVerdict
}

// Line is the verdict on what one line of a process allocated of one kind on one device.
type Line struct {
	Process ledger.ProcessID
	Device  int32
	Kind    ledger.Kind
	Class   verdict.Class
	Bytes   uint64
	Rate    float64 // bytes per second
}

// GPU is the verdict on what a GPU is used for.
type GPU struct {
	UUID   string
	Planes []Plane
	Full   time.Duration // until it is full at the rate of all planes that grow; 0: unknown or never
}

// Plane is the verdict on one plane of a GPU.
type Plane struct {
	Name  string // report.PlaneKey
	Class verdict.Class
	Rate  float64 // bytes per second
}

// mostGPUs is how many GPUs on which nothing grows are listed.
const mostGPUs = 8

// New returns a Watcher that names lines by stacks. It calls judged, unless that is nil, with each
// judgement and its snapshot, one at a time, in a goroutine of its own.
func New(stacks callstack.Stacks, judged func(*ledger.Snapshot, *report.Judgement)) *Watcher {
	return &Watcher{stacks: stacks, judged: judged, failed: map[string]uint64{}}
}

// IsDue reports whether Offer would have a snapshot judged.
func (w *Watcher) IsDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isDue()
}

func (w *Watcher) isDue() bool { return w.ready == nil && !time.Now().Before(w.due) }

// Offer has a snapshot judged if verdicts are due, and does not wait for them.
func (w *Watcher) Offer(s *ledger.Snapshot) { w.offer(s) }

// offer returns what is closed when the judgement that runs has ended, nil if none does.
func (w *Watcher) offer(s *ledger.Snapshot) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isDue() {
		w.ready = make(chan struct{})
		go w.judge(s)
	}
	return w.ready
}

// Latest returns the latest verdicts, nil if there are none yet.
func (w *Watcher) Latest() *Verdicts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// For offers a snapshot and returns the latest verdicts. It waits for the first ones of the
// session.
func (w *Watcher) For(s *ledger.Snapshot) *Verdicts {
	ready := w.offer(s)
	if v := w.Latest(); v != nil || ready == nil {
		return v
	}
	<-ready
	return w.Latest()
}

// Panics returns how often a judgement ended in a panic, by the place in the code.
func (w *Watcher) Panics() map[string]uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.failed)
}

func (w *Watcher) judge(s *ledger.Snapshot) {
	begin := time.Now()
	var v *Verdicts
	defer func() {
		place := ""
		if recover() != nil {
			place = panics.Panicked()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if place != "" {
			w.failed[place]++
		}
		if v != nil {
			w.latest = v
		}
		w.rest(begin)
		close(w.ready)
		w.ready = nil
	}()
	j := report.Judge(s, w.stacks)
	v = verdictsOf(s, j)
	if w.judged != nil {
		w.judged(s, j)
	}
}

// rest sets when the next judgement is due. The first one names many stacks, so the lower cost of
// two counts. w.mu is held.
func (w *Watcher) rest(begin time.Time) {
	now := time.Now()
	cost := now.Sub(begin)
	if w.cost == 0 {
		w.cost = cost
	}
	w.due = now.Add(min(max(share*min(cost, w.cost), least), longest))
	w.cost = cost
}

// verdictsOf keeps of a judgement what fits later snapshots. Segments of PyTorch's allocator have
// no lines: a leak shows in their tensors.
func verdictsOf(s *ledger.Snapshot, j *report.Judgement) *Verdicts {
	v := &Verdicts{At: s.End, advice: j.Advice, balance: j.BalanceTexts(mostGPUs), sites: make(map[ledger.SiteID]report.SiteVerdict)}
	for i := range j.Groups {
		g := &j.Groups[i]
		if p := &s.Processes[g.Process]; p.End == 0 && !g.Segment && g.Kind != ledger.Imported && g.LiveBytes > 0 {
			v.Lines = append(v.Lines, Line{p.ID(), g.Device, g.Kind, g.Class, g.LiveBytes, g.Rate.Value})
		}
	}
	for i := range j.GPUs {
		b := &j.GPUs[i]
		if b.GPU == nil {
			continue
		}
		g := GPU{UUID: b.GPU.UUID, Full: b.Full}
		for k := range b.Rows {
			r := &b.Rows[k]
			g.Planes = append(g.Planes, Plane{report.PlaneKey(r.Plane), r.Class, r.Rate})
		}
		v.GPUs = append(v.GPUs, g)
	}
	for i, x := range j.Sites() {
		if x.Class != "" {
			v.sites[s.IDOf(&s.Sites[i])] = x
		}
	}
	return v
}

// Sites returns the verdicts on the sites of a later snapshot, in the order of Snapshot.Sites:
// those without one are empty.
func (v *Verdicts) Sites(s *ledger.Snapshot) []report.SiteVerdict {
	list := make([]report.SiteVerdict, len(s.Sites))
	if v == nil {
		return list
	}
	for i := range s.Sites {
		list[i] = v.sites[s.IDOf(&s.Sites[i])]
	}
	return list
}

// Advice returns report.Judgement.Advice; none without verdicts.
func (v *Verdicts) Advice() []string {
	if v == nil {
		return nil
	}
	return v.advice
}

// Time returns the end of the snapshot that was judged, 0 without verdicts.
func (v *Verdicts) Time() uint64 {
	if v == nil {
		return 0
	}
	return v.At
}

// Balance returns report.Judgement.BalanceTexts; none without verdicts.
func (v *Verdicts) Balance() []string {
	if v == nil {
		return nil
	}
	return v.balance
}
