// SPDX-License-Identifier: Apache-2.0

package pauses

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// world imitates all that a Keeper sees: its clock, processes with allocators, the probe and the
// books. log has what was done, in order.
type world struct {
	*Keeper
	t       *testing.T
	time    uint64
	crowded bool // no process can be paused alone
	fails   error
	counts  map[uint32]budget.Count
	sources map[uint32]*fakeSource
	log     []string
	during  func(step string) // is called after each step of the probe
}

// fakeSource is an allocator whose counters grow as a test wants.
type fakeSource struct {
	device allocator.Device
	opened int
	closed int
	fails  bool
}

func (s *fakeSource) Counters() ([]allocator.Device, error) {
	if s.fails {
		return nil, errors.New("gone")
	}
	return []allocator.Device{s.device}, nil
}

func (s *fakeSource) Close() { s.closed++ }

// free has the allocator free a block of a kind of pools.
func (s *fakeSource) free(kind int, bytes uint64) {
	c := &s.device.Counters
	c.Allocated.Current -= bytes
	p := &c.Pools[kind]
	for stat, n := range map[*allocator.Stat]uint64{&p.Allocations: 1, &p.Allocated: bytes} {
		stat.Current, stat.Freed = stat.Current-n, stat.Freed+n
	}
}

// live is what the kernel half has of each allocator: a small and a large block.
const live = 512 + 8<<20

func newWorld(t *testing.T, pids ...uint32) *world {
	w := &world{t: t, time: 1e9, counts: map[uint32]budget.Count{}, sources: map[uint32]*fakeSource{}, during: func(string) {}}
	defects := &panics.List{}
	meter := &budget.Meter{}
	meter.SetPrice(time.Microsecond)
	w.Keeper = New(Options{
		Budget: 0.02, Meter: meter, Probe: w, Allocators: books{w}, Defects: defects,
		Sequencer: sequence.New(ledger.New(ledger.Options{Begin: 1}), books{w}, defects), Read: func() { w.did("read") },
	})
	w.now = func() uint64 { return w.time }
	w.controller = budget.NewController(0.02, func() float64 { return 0.5 })
	w.readers.open = func(pid uint32, _ *allocator.Layouts) (source, error) {
		s := w.sources[pid]
		if s == nil {
			return nil, errors.New("no PyTorch")
		}
		s.opened++
		return s, nil
	}
	w.readers.forAll, w.readers.forOne = time.Hour, time.Hour
	for _, pid := range pids {
		s := &fakeSource{device: allocator.Device{Steady: [2]bool{true, true}}}
		c := &s.device.Counters
		c.Allocated, c.Reserved = allocator.Stat{Current: live, Allocated: live}, allocator.Stat{Current: 20 << 20, Allocated: 20 << 20}
		for kind, bytes := range map[int]uint64{allocator.Small: 512, allocator.Large: 8 << 20} {
			p := &c.Pools[kind]
			p.Allocations, p.Allocated = allocator.Stat{Current: 1, Allocated: 1}, allocator.Stat{Current: bytes, Allocated: bytes}
		}
		w.sources[pid], w.counts[pid] = s, budget.Count{Reports: 1}
	}
	return w
}

func (w *world) did(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// want compares the log with what was to be done since the last call.
func (w *world) want(what string, steps ...string) {
	w.t.Helper()
	if !slices.Equal(w.log, steps) {
		w.t.Errorf("%s:\ngot  %s\nwant %s", what, strings.Join(w.log, "; "), strings.Join(steps, "; "))
	}
	w.log = nil
}

func (w *world) probe(step string) { w.did("%s", step); w.during(step) }

func (w *world) CanPauseOne() bool { return !w.crowded }
func (w *world) Detach(pids []uint32) error {
	w.probe(fmt.Sprint("detach ", pids))
	return w.fails
}
func (w *world) Attach(pids []uint32) error { w.probe(fmt.Sprint("attach ", pids)); return nil }
func (w *world) DetachAll()                 { w.probe("detach all") }
func (w *world) AttachAll() error           { w.probe("attach all"); return nil }
func (w *world) Join() error                { w.probe("join"); return nil }
func (w *world) Forget()                    {}

// books are the world's Allocators, and its capture.
type books struct{ *world }

func (b books) Counts() map[uint32]budget.Count {
	list := map[uint32]budget.Count{}
	for pid, c := range b.counts {
		list[pid] = c
	}
	return list
}

func (b books) Live() map[torchalloc.Allocator]uint64 {
	list := map[torchalloc.Allocator]uint64{}
	for pid := range b.sources {
		list[torchalloc.Allocator{PID: pid}] = live
	}
	return list
}

// Settle keeps the small and the large block where they are proven to have stayed.
func (b books) Settle(of map[uint32]bool, _ uint64, known map[torchalloc.Allocator]torchalloc.Known, some bool) map[torchalloc.Allocator]torchalloc.Smallest {
	kept := map[torchalloc.Allocator]torchalloc.Smallest{}
	for name, x := range known {
		if !of[name.PID] {
			b.t.Errorf("process %d is settled, which is traced", name.PID)
		}
		k := torchalloc.Smallest{Small: ledger.Unknown, Large: ledger.Unknown}
		if x.Has(512) {
			k.Small = 512
		}
		if x.Has(8 << 20) {
			k.Large = 8 << 20
		}
		if k.Small != ledger.Unknown || k.Large != ledger.Unknown {
			kept[name] = k
		}
	}
	return kept
}

func (b books) Read(*sequence.Tx)   {}
func (b books) Apply(*ledger.Event) {}

func (b books) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.Untraced:
		text := fmt.Sprintf("%d not traced", in.PID)
		if in.Open {
			text += ", open"
		}
		for _, s := range in.Stayed {
			text += fmt.Sprintf(", small blocks stay %v, large %v", s.Has(512), s.Has(8<<20))
		}
		b.did("%s", text)
	case ledger.Warning:
		b.did("warning")
	}
}

// pass has a time pass, in which processes report so often.
func (w *world) pass(d time.Duration, reports map[uint32]uint64) {
	w.time += uint64(d)
	for pid, n := range reports {
		c := w.counts[pid]
		c.Reports += n
		w.counts[pid] = c
	}
}

const many = 100_000 // reports, which take 0.4 s

func TestOnlyTheProcessAboveTheBudgetIsDetached(t *testing.T) {
	w := newWorld(t, 7, 8)
	w.step(w.time)
	w.pass(time.Second, map[uint32]uint64{7: 10, 8: many})
	if next := w.step(w.time); next != 0 {
		t.Errorf("the next step is in %v, want at once", next)
	}
	w.want("above", "detach [8]", "read", "8 not traced, open")
	w.pass(2*time.Second, map[uint32]uint64{7: 10})
	w.step(w.time)
	w.want("totals while it is away", "8 not traced, open")
	w.pass(time.Minute, nil)
	w.step(w.time)
	w.want("the budget is repaid", "8 not traced, small blocks stay true, large true", "attach [8]")
	if c := w.Meter.Cost(); c.AwayPID != 8 || c.Paused != 1 || c.Away != uint64(62*time.Second) {
		t.Errorf("the pause is counted as %+v", c)
	}
}

func TestBlocksOfOnlyOneKindStay(t *testing.T) {
	w := newWorld(t, 7)
	w.Pause(7)
	w.want("pause", "detach [7]", "read", "7 not traced, open")
	w.sources[7].free(allocator.Small, 512)
	w.pass(time.Second, nil)
	w.Update()
	w.want("less than its lines", "7 not traced, open, small blocks stay false, large true")
	w.Resume(7)
	w.want("resume", "7 not traced, small blocks stay false, large true", "attach [7]")
}

// TestWhatIsFreedWhileTheProbeReturnsDoesNotStay: the counters are read again when the probe is
// attached, and what they do not prove ends, in as many tries as it takes, the last of which keeps
// nothing.
func TestWhatIsFreedWhileTheProbeReturnsDoesNotStay(t *testing.T) {
	w := newWorld(t, 7, 8)
	w.Pause(7, 8)
	w.want("pause", "detach [7 8]", "read", "7 not traced, open", "8 not traced, open")
	w.during = func(step string) {
		if strings.HasPrefix(step, "attach") {
			w.sources[7].free(allocator.Large, 8<<20)
		}
	}
	w.Resume(7, 8)
	w.want("once", "7 not traced, small blocks stay true, large true", "8 not traced, small blocks stay true, large true", "attach [7 8]",
		"detach [7]", "7 not traced, small blocks stay true, large false", "attach [7]")
	w.Pause(7)
	w.log = nil
	w.during = func(step string) {
		if strings.HasPrefix(step, "attach") {
			w.sources[7].fails = true
		}
	}
	w.Resume(7)
	w.want("its counters are not read any more", "7 not traced, small blocks stay true, large true", "attach [7]",
		"detach [7]", "7 not traced", "attach [7]")
}

func TestAProcessThatEndsWhileItIsPausedIsForgotten(t *testing.T) {
	w := newWorld(t, 7, 8)
	w.step(w.time)
	w.pass(time.Second, map[uint32]uint64{8: many})
	w.step(w.time)
	w.log = nil
	delete(w.counts, 8)
	w.pass(time.Minute, nil)
	w.step(w.time)
	w.want("the others have one link again", "join")
	if w.sources[8].opened != 1 || w.sources[8].closed != 1 || len(w.readers.of) != 0 {
		t.Errorf("its memory was opened %d times and closed %d times", w.sources[8].opened, w.sources[8].closed)
	}
}

// TestOneLinkAgainAfterAMinuteWithoutAPause: links of single processes delay all reports.
func TestOneLinkAgainAfterAMinuteWithoutAPause(t *testing.T) {
	w := newWorld(t, 7)
	w.step(w.time)
	w.pass(time.Second, map[uint32]uint64{7: many})
	w.step(w.time)
	w.pass(30*time.Second, nil)
	w.step(w.time) // it is traced again
	w.log = nil
	w.pass(50*time.Second, nil)
	w.step(w.time)
	w.want("less than a minute")
	w.pass(11*time.Second, nil)
	w.step(w.time)
	w.want("a minute", "join")
	w.pass(time.Hour, nil)
	w.step(w.time)
	w.want("later")
}

func TestWhereNoneCanBePausedAloneAllArePaused(t *testing.T) {
	for _, late := range []bool{false, true} {
		w := newWorld(t, 7, 8)
		w.crowded = !late
		w.step(w.time)
		w.log = nil
		w.pass(time.Second, map[uint32]uint64{8: many})
		if late { // there become too many while one is paused
			w.step(w.time)
			w.want("one", "detach [8]", "read", "8 not traced, open")
			w.crowded = true
			w.pass(time.Second, map[uint32]uint64{7: many})
			w.step(w.time)
			w.want("it is resumed first", "8 not traced, small blocks stay true, large true", "attach [8]", "join")
			w.pass(time.Second, nil)
			w.step(w.time)
		} else {
			w.step(w.time)
		}
		w.want("all", "detach all", "read", "7 not traced, open", "8 not traced, open")
		w.pass(2*time.Minute, nil)
		w.step(w.time)
		w.want("again", "7 not traced, small blocks stay true, large true", "8 not traced, small blocks stay true, large true", "attach all")
	}
}

func TestAProbeThatCannotBeDetachedFromOneIsDetachedFromAll(t *testing.T) {
	w := newWorld(t, 7)
	w.fails = errors.New("no more files")
	w.step(w.time)
	w.pass(time.Second, map[uint32]uint64{7: many})
	w.step(w.time)
	w.want("it fails", "detach [7]", "warning")
	w.step(w.time)
	w.pass(time.Second, map[uint32]uint64{7: many})
	w.step(w.time)
	w.want("then", "detach all", "read", "7 not traced, open")
}

func TestAtTheEndNothingIsKeptThatMayHaveBeenFreed(t *testing.T) {
	w := newWorld(t, 7)
	w.Pause(7)
	w.log = nil
	w.end()
	w.want("end", "7 not traced, small blocks stay false, large false")
	w.end()
	w.want("nothing is paused")
}

func TestReadersAreLimitedAndTriedAgainOnlyLater(t *testing.T) {
	w := newWorld(t)
	for pid := range uint32(maxReaders + 5) {
		w.sources[pid+1] = &fakeSource{}
	}
	for pid := range uint32(maxReaders + 5) {
		w.readers.read([]uint32{pid + 1})
	}
	if len(w.readers.of) != maxReaders {
		t.Errorf("%d readers, want %d", len(w.readers.of), maxReaders)
	}
	w.sources[1].fails = true
	for range 3 {
		if got := w.readers.read([]uint32{1, 2}); len(got) != 1 || got[2].by == nil {
			t.Errorf("got %v", got)
		}
	}
	if s := w.sources[1]; s.opened != 1 || s.closed != 1 {
		t.Errorf("opened %d times, closed %d times", s.opened, s.closed)
	}
}
