// SPDX-License-Identifier: Apache-2.0

// Package pauses keeps the budget of tracing: it detaches the probe on PyTorch's reports and attaches it again, and has
// the kernel half and the books keep the blocks that were not freed meanwhile.
package pauses

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	Allocators *torchalloc.Allocators
	Sequencer  *sequence.Sequencer
	Defects    *panics.List
	Read       func() // has the books take the totals of all allocators, in a transaction of its own
}

// Probe is the probe on PyTorch's reports: probes.Reports.
type Probe interface {
	Detach() // returns when no thread reports any more
	Attach() error
}

// Keeper keeps a budget. Its methods are for one goroutine.
type Keeper struct {
	Options
	controller *budget.Controller
	readers    readers
	counts     map[uint32]budget.Count
	away       uint64 // since when the probe is detached; 0: it is attached
	counted    uint64 // until when Meter knows that
	before     read   // counters, from before it was detached
}

// readInterval is how often the totals are read while the probe is detached.
const readInterval = time.Second

// tries is how often the probe is attached until what was kept is proven. The last time nothing is kept.
const tries = 3

// New returns a Keeper, which has attached nothing.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, controller: budget.NewController(o.Budget, rand.Float64), readers: newReaders(), counts: map[uint32]budget.Count{},
	}
}

// Run keeps the budget until ctx ends. The probe is attached when it is called; at the end the books are those of then
// also if it is not.
func (k *Keeper) Run(ctx context.Context) {
	defer k.readers.close()
	for ctx.Err() == nil {
		if next := k.step(); next > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(min(next, readInterval)):
			}
		}
	}
	if k.away != 0 {
		k.end()
	}
}

// step returns in what time to call it again.
func (k *Keeper) step() time.Duration {
	counts := k.Allocators.Counts()
	spent := make(map[uint32]time.Duration, len(counts))
	for pid, n := range counts {
		spent[pid] = k.Meter.TimeOf(n.Since(k.counts[pid]))
	}
	k.counts = counts
	on, next := k.controller.Step(clock.Now(), spent)
	switch {
	case on && k.away != 0:
		k.Resume()
	case !on && k.away == 0:
		k.Pause()
	case k.away != 0:
		k.Update()
		return next
	default:
		return next
	}
	return 0
}

// Pause detaches the probe.
func (k *Keeper) Pause() {
	defer k.Defects.Recovered(torchalloc.Reading)
	k.before = k.readers.read(k.Allocators.OnGPUs())
	k.Probe.Detach()
	k.away = clock.Now()
	k.counted = k.away
	k.Read() // the last totals
	k.tell(k.away, ledger.Untraced{From: k.away, To: k.away, Open: true})
}

// count adds to the time in which the probe was detached.
func (k *Keeper) count() {
	now := clock.Now()
	k.Meter.AddAway(time.Duration(now - k.counted))
	k.counted = now
}

// Update has the books take the totals while the probe is detached. Lines stay as they were, unless the allocator has
// less than they have.
func (k *Keeper) Update() {
	defer k.Defects.Recovered(torchalloc.Reading)
	k.count()
	now := clock.Now()
	known, live := k.before.until(k.readers.read(k.before.pids())), k.Allocators.Live()
	in := ledger.Untraced{From: k.away, To: now, Open: true}
	for of, x := range known {
		switch {
		case !x.Totals:
			delete(known, of)
			continue
		case x.Allocated >= live[of]:
			x.Small, x.Large = 0, 0
		default:
			in.Stayed = append(in.Stayed, x.Stayed)
		}
		known[of] = x
	}
	if len(known) > 0 {
		k.Allocators.Settle(now, known, true)
		k.tell(now, in)
	}
}

// end ends what may have been freed, without attaching the probe again.
func (k *Keeper) end() {
	defer k.Defects.Recovered(torchalloc.Reading)
	k.settle(k.away, nil, true)
	k.count()
	k.away = 0
}

// tell has the books take what became of blocks until a time, and then the totals.
func (k *Keeper) tell(now uint64, in ledger.Untraced) {
	tx := k.Sequencer.Begin()
	defer tx.Done()
	tx.Read(torchalloc.Reading, now, func(tx *sequence.Tx) { tx.Tell(in) })
	k.Allocators.Read(tx)
}

// Resume attaches the probe again, and ends the blocks that are not proven to have stayed.
func (k *Keeper) Resume() {
	defer k.Defects.Recovered(torchalloc.Reading)
	since, failed := k.away, map[torchalloc.Allocator]unproven{}
	for try := range tries {
		kept := k.settle(since, failed, try < tries-1)
		if err := k.Probe.Attach(); err != nil {
			k.Sequencer.Warn(0, fmt.Sprintf("attach the probe on PyTorch's reports again: %v", err))
		}
		if len(kept) == 0 || k.prove(kept, failed) {
			break
		}
		k.Probe.Detach()
	}
	k.count()
	k.away = 0
}

// unproven has the kinds of blocks of an allocator that could not be proven to have stayed.
type unproven struct{ small, large bool }

// settle keeps what was not freed until now, except of allocators for which that could not be proven the last time, and
// returns what it kept. The probe is detached.
func (k *Keeper) settle(since uint64, failed map[torchalloc.Allocator]unproven, keep bool) map[torchalloc.Allocator]torchalloc.Smallest {
	now := clock.Now()
	known := k.before.until(k.readers.read(k.before.pids()))
	in := ledger.Untraced{From: since, To: now}
	for of, x := range known {
		if failed[of].small || !keep {
			x.Small = ledger.Unknown
		}
		if failed[of].large || !keep {
			x.Large = ledger.Unknown
		}
		known[of] = x
		in.Stayed = append(in.Stayed, x.Stayed)
	}
	kept := k.Allocators.Settle(now, known, false)
	k.tell(now, in)
	return kept
}

// prove reports whether what was kept stayed until now, when the probe is attached, and notes allocators of which it
// does not know.
func (k *Keeper) prove(kept map[torchalloc.Allocator]torchalloc.Smallest, failed map[torchalloc.Allocator]unproven) bool {
	known := k.before.until(k.readers.read(k.before.pids()))
	proven := true
	for of, least := range kept {
		x, ok := known[of]
		f := unproven{least.Small != ledger.Unknown && !(ok && x.Has(least.Small)), least.Large != ledger.Unknown && !(ok && x.Has(least.Large))}
		if f.small || f.large {
			failed[of], proven = unproven{failed[of].small || f.small, failed[of].large || f.large}, false
		}
	}
	return proven
}
