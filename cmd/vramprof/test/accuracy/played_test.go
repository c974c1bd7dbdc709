// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"math"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// allocation is one allocation, as noted by the program itself or as read from a capture.
type allocation struct {
	thread        uint32
	before, after uint64 // of the call; in a capture, both are the time of its return
	address, size uint64
	stack         uint64 // a capture's id, or the number in the truth
	api           string
	tensor        bool
}

// played is the content of a capture.
type played struct {
	*ledger.Ledger // receives everything
	rec            *capture.Reader
	allocs         []allocation // by time
	allocEvents    uint64
	freeEvents     uint64
	snapshot       *ledger.Snapshot
}

func (p *played) Apply(e *ledger.Event) {
	switch e.Op {
	case ledger.Alloc:
		p.allocEvents++
		p.allocs = append(p.allocs, allocation{e.TID, e.Time, e.Time, e.Address, e.Size, e.Stack, e.API, e.Kind == ledger.Tensor})
	case ledger.Free:
		p.freeEvents++
	}
	p.Ledger.Apply(e)
}

// played reads the capture of a session that has ended.
func (s *session) played() *played {
	s.t.Helper()
	rec, err := capture.Open(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { rec.Close() })
	p := &played{rec: rec, Ledger: rec.NewLedger()}
	if err := rec.Play(math.MaxUint64, p); err != nil {
		s.t.Fatal(err)
	}
	for _, w := range rec.Warnings() {
		s.t.Errorf("the capture: %s", w)
	}
	p.snapshot = rec.SnapshotOf(p.Ledger, math.MaxUint64)
	return p
}

// pausing calls at for each of the times, once it has received all events up to then. A view of a
// capture follows the order in which inputs arrived, where NVML's readings may be ahead of events
// that wait in the ring. A program that paused at that moment knows the events' own times.
type pausing struct {
	ledger.Books
	times []uint64
	at    func(int)
	next  int
}

func (p *pausing) Apply(e *ledger.Event) {
	p.pass(e.Time)
	p.Books.Apply(e)
}

func (p *pausing) pass(time uint64) {
	for ; p.next < len(p.times) && p.times[p.next] < time; p.next++ {
		p.at(p.next)
	}
}

// playMoments plays a whole capture into books.
func playMoments(t *testing.T, rec *capture.Reader, books ledger.Books, times []uint64, at func(int)) {
	t.Helper()
	p := &pausing{Books: books, times: times, at: at}
	if err := rec.Play(math.MaxUint64, p); err != nil {
		t.Fatal(err)
	}
	p.pass(math.MaxUint64)
}

// joined is an allocation of the program with vramprof's record of it.
type joined struct{ truth, got allocation }

// join matches each allocation of the program with that of the capture: same thread, same address,
// during the call. It also returns what only one side has.
func join(truth, got []allocation) (both []joined, missed, invented []allocation) {
	type key struct {
		thread  uint32
		address uint64
	}
	at := map[key][]allocation{}
	for _, a := range got {
		k := key{a.thread, a.address}
		at[k] = append(at[k], a)
	}
	for _, a := range truth {
		k := key{a.thread, a.address}
		i := slices.IndexFunc(at[k], func(x allocation) bool { return a.before <= x.before && x.after <= a.after })
		if i < 0 {
			missed = append(missed, a)
			continue
		}
		both = append(both, joined{a, at[k][i]})
		at[k] = slices.Delete(at[k], i, i+1)
	}
	for _, list := range at {
		invented = append(invented, list...)
	}
	return both, missed, invented
}
