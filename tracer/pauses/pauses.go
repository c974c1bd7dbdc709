// SPDX-License-Identifier: Apache-2.0

// Package pauses keeps the budget of tracing: it detaches the probe on PyTorch's reports from
// processes that are above it and attaches it again, and has the kernel half and the books keep the
// blocks that were not freed meanwhile.
package pauses

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/torchalloc"
)

// Options is what a Keeper needs.
type Options struct {
	Budget     float64 // share of a thread's time, above 0
	Meter      *budget.Meter
	Probe      Probe
	Allocators Allocators
	Sequencer  *sequence.Sequencer
	Defects    *panics.List
	Read       func()        // has the books take the totals of all allocators, in a transaction of its own
	Patience   time.Duration // with the counters of one process; 0: 50 ms, since all wait for that
}

// Probe is the probe on PyTorch's reports: probes.Reports.
type Probe interface {
	CanPauseOne() bool
	Detach(pids []uint32) error // returns when no thread of them reports any more
	Attach(pids []uint32) error
	DetachAll()
	AttachAll() error
	Join() error // gives all processes one link again
	Forget()     // forgets processes that have ended
}

// Allocators is what is known of PyTorch's allocators: torchalloc.Allocators.
type Allocators interface {
	Counts() map[uint32]budget.Count
	Live() map[torchalloc.Allocator]uint64
	Settle(of map[uint32]bool, at uint64, known map[torchalloc.Allocator]torchalloc.Known, some bool) map[torchalloc.Allocator]torchalloc.Smallest
	Read(tx *sequence.Tx)
}

// Keeper keeps a budget. Its methods are for one goroutine.
type Keeper struct {
	Options
	controller *budget.Controller
	readers    readers
	counts     map[uint32]budget.Count
	away       map[uint32]*away // processes that are not traced
	together   bool             // all are, or none is
	latest     uint64           // when a process was not traced, the latest time
	updated    uint64           // when Update was called
	forgotten  uint64           // when processes were forgotten
	now        func() uint64    // clock.Now, or that of a test
}

// away is a process that is not traced.
type away struct {
	since   uint64
	counted uint64 // until when Meter knows that
	before  reading
}

const (
	readInterval   = time.Second // between readings of the totals of processes that are not traced
	forgetInterval = 5 * time.Second
	joinAfter      = time.Minute // without a pause

	// tries is how often the probe is attached until what was kept is proven. The last time nothing
	// is kept.
	tries = 3
)

// New returns a Keeper, which has attached nothing.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, controller: budget.NewController(o.Budget, rand.Float64), readers: newReaders(o.Patience),
		counts: map[uint32]budget.Count{}, away: map[uint32]*away{}, now: clock.Now,
	}
}

// Run keeps the budget until ctx ends. The probe is attached when it is called; at the end the
// books are those of then also if it is not.
func (k *Keeper) Run(ctx context.Context) {
	defer k.readers.close()
	for ctx.Err() == nil {
		if next := k.step(k.now()); next > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(min(next, readInterval)):
			}
		}
	}
	k.end()
}

// step returns in what time to call it again.
func (k *Keeper) step(now uint64) time.Duration {
	counts := k.Allocators.Counts()
	spent := make(map[uint32]time.Duration, len(counts))
	for pid, n := range counts {
		spent[pid] = k.Meter.TimeOf(n.Since(k.counts[pid]))
	}
	k.counts = counts
	maps.DeleteFunc(k.away, func(pid uint32, _ *away) bool {
		_, reports := counts[pid]
		return !reports && !k.together
	})
	if !k.together && !k.Probe.CanPauseOne() {
		k.Resume(k.pids()...)
		k.warn(k.Probe.Join())
		k.together = true
	}
	paused, next := k.controller.Step(now, spent, k.together)
	pause, resume := k.changes(paused)
	switch {
	case len(resume) > 0:
		k.Resume(resume...)
	case len(pause) > 0:
		k.Pause(pause...)
	default:
		k.idle(now)
		return next
	}
	return 0
}

// changes returns the processes to pause and to resume.
func (k *Keeper) changes(paused map[uint32]bool) (pause, resume []uint32) {
	switch {
	case !k.together:
		for pid := range paused {
			if k.away[pid] == nil {
				pause = append(pause, pid)
			}
		}
		for pid := range k.away {
			if !paused[pid] {
				resume = append(resume, pid)
			}
		}
	case paused[budget.All] && len(k.away) == 0:
		pause = slices.Collect(maps.Keys(k.counts))
	case !paused[budget.All]:
		resume = k.pids()
	}
	slices.Sort(pause)
	slices.Sort(resume)
	return pause, resume
}

// idle does what is due from time to time.
func (k *Keeper) idle(now uint64) {
	if len(k.away) > 0 {
		k.latest = now
		if now >= k.updated+uint64(readInterval) {
			k.updated = now
			k.Update()
		}
	}
	if now < k.forgotten+uint64(forgetInterval) {
		return
	}
	k.forgotten = now
	k.Probe.Forget()
	k.readers.retain(k.counts)
	if !k.together && k.latest != 0 && now >= k.latest+uint64(joinAfter) {
		k.latest = 0
		k.warn(k.Probe.Join())
	}
}

func (k *Keeper) warn(err error) {
	if err != nil {
		k.Sequencer.Warn(0, fmt.Sprintf("attach the probe on PyTorch's reports again: %v", err))
	}
}

// pids returns the processes that are not traced.
func (k *Keeper) pids() []uint32 { return slices.Sorted(maps.Keys(k.away)) }

// Pause detaches the probe from processes.
func (k *Keeper) Pause(pids ...uint32) {
	defer k.Defects.Recovered(torchalloc.Reading)
	before := k.readers.read(pids)
	if k.together {
		k.Probe.DetachAll()
	} else if err := k.Probe.Detach(pids); err != nil {
		k.warn(err)
		k.together = true
		return
	}
	now := k.now()
	for _, pid := range pids {
		k.away[pid] = &away{since: now, counted: now, before: before[pid]}
	}
	k.latest = now
	k.Read() // the last totals
	in := map[uint32]*ledger.Untraced{}
	for _, pid := range pids {
		in[pid] = &ledger.Untraced{PID: pid, From: now, To: now, Open: true}
	}
	k.tell(now, in)
}

// count adds to the times in which the probe was detached.
func (k *Keeper) count(pids ...uint32) {
	now := k.now()
	for _, pid := range pids {
		a := k.away[pid]
		k.Meter.AddAway(pid, time.Duration(now-min(a.counted, now)))
		a.counted = now
	}
}

// known returns what is known of processes that are not traced, by their counters of now.
func (k *Keeper) known(pids []uint32) map[torchalloc.Allocator]torchalloc.Known {
	before := read{}
	for _, pid := range pids {
		if a := k.away[pid]; a.before.by != nil {
			before[pid] = a.before
		}
	}
	return before.until(k.readers.read(before.pids()))
}

// Update has the books take the totals of processes that are not traced. Their lines stay as they
// were, unless an allocator has less than they have.
func (k *Keeper) Update() {
	defer k.Defects.Recovered(torchalloc.Reading)
	pids := k.pids()
	k.count(pids...)
	now := k.now()
	known, live := k.known(pids), k.Allocators.Live()
	in := map[uint32]*ledger.Untraced{}
	for of, x := range known {
		if !x.Totals {
			delete(known, of)
			continue
		}
		u := in[of.PID]
		if u == nil {
			u = &ledger.Untraced{PID: of.PID, From: k.away[of.PID].since, To: now, Open: true}
			in[of.PID] = u
		}
		if x.Allocated >= live[of] {
			x.Small, x.Large = 0, 0
		} else {
			u.Stayed = append(u.Stayed, x.Stayed)
		}
		known[of] = x
	}
	if len(known) > 0 {
		k.Allocators.Settle(set(pids), now, known, true)
		k.tell(now, in)
	}
}

func set(pids []uint32) map[uint32]bool {
	of := map[uint32]bool{}
	for _, pid := range pids {
		of[pid] = true
	}
	return of
}

// end ends what may have been freed, without attaching the probe again.
func (k *Keeper) end() {
	defer k.Defects.Recovered(torchalloc.Reading)
	if pids := k.pids(); len(pids) > 0 {
		k.settle(pids, nil, false)
		k.count(pids...)
		clear(k.away)
	}
}

// tell has the books take what became of the blocks of processes until a time, and then the totals.
func (k *Keeper) tell(now uint64, in map[uint32]*ledger.Untraced) {
	tx := k.Sequencer.Begin()
	defer tx.Done()
	tx.Read(torchalloc.Reading, now, func(tx *sequence.Tx) {
		for _, pid := range slices.Sorted(maps.Keys(in)) {
			tx.Tell(*in[pid])
		}
	})
	k.Allocators.Read(tx)
}

// Resume attaches the probe to processes again, and ends the blocks that are not proven to have
// stayed.
func (k *Keeper) Resume(pids ...uint32) {
	defer k.Defects.Recovered(torchalloc.Reading)
	left, failed := pids, map[torchalloc.Allocator]unproven{}
	for try := 0; len(left) > 0; try++ {
		kept := k.settle(left, failed, try < tries-1)
		if k.together {
			k.warn(k.Probe.AttachAll())
		} else {
			k.warn(k.Probe.Attach(left))
		}
		if left = k.prove(left, kept, failed); len(left) == 0 {
			break
		}
		if k.together {
			k.Probe.DetachAll()
			left = pids
		} else {
			k.warn(k.Probe.Detach(left))
		}
	}
	k.count(pids...)
	for _, pid := range pids {
		delete(k.away, pid)
	}
	k.latest = k.now()
}

// unproven has the kinds of blocks of an allocator that could not be proven to have stayed.
type unproven struct{ small, large bool }

// settle keeps what was not freed until now, except of allocators for which that could not be
// proven the last time, and returns what it kept. The probe is detached.
func (k *Keeper) settle(pids []uint32, failed map[torchalloc.Allocator]unproven, keep bool) map[torchalloc.Allocator]torchalloc.Smallest {
	now := k.now()
	in := map[uint32]*ledger.Untraced{}
	for _, pid := range pids {
		in[pid] = &ledger.Untraced{PID: pid, From: k.away[pid].since, To: now}
	}
	known := k.known(pids)
	for of, x := range known {
		if failed[of].small || !keep {
			x.Small = ledger.Unknown
		}
		if failed[of].large || !keep {
			x.Large = ledger.Unknown
		}
		known[of] = x
		in[of.PID].Stayed = append(in[of.PID].Stayed, x.Stayed)
	}
	kept := k.Allocators.Settle(set(pids), now, known, false)
	k.tell(now, in)
	return kept
}

// prove returns the processes of which it does not know that what was kept stayed until now, when
// the probe is attached, and notes their allocators.
func (k *Keeper) prove(pids []uint32, kept map[torchalloc.Allocator]torchalloc.Smallest, failed map[torchalloc.Allocator]unproven) (left []uint32) {
	if len(kept) == 0 {
		return nil
	}
	known, of := k.known(pids), map[uint32]bool{}
	for name, least := range kept {
		x, ok := known[name]
		f := unproven{least.Small != ledger.Unknown && !(ok && x.Has(least.Small)), least.Large != ledger.Unknown && !(ok && x.Has(least.Large))}
		if f.small || f.large {
			failed[name] = unproven{failed[name].small || f.small, failed[name].large || f.large}
			of[name.PID] = true
		}
	}
	return slices.Sorted(maps.Keys(of))
}
