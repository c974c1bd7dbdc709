// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// lines returns everything that the model and a snapshot must agree on.
func (m *model) lines() (list []string) {
	for key, t := range m.totals {
		if t[2] != 0 { // otherwise all moved to another device's site
			list = append(list, fmt.Sprint("total ", key, " ", *t))
		}
	}
	for key, r := range m.releases {
		list = append(list, fmt.Sprint("release ", key, " ", *r))
	}
	for _, p := range m.pools {
		if !p.destroyed || p.objects > 0 {
			list = append(list, fmt.Sprint("pool ", p.pid, " ", p.handle, " ", p.device, " ", p.objects, " ", p.used, " ", p.reserve, " ", p.threshold, " ", p.destroyed))
		}
	}
	unknown := 0
	for _, o := range m.objects {
		if o.Size == 0 && !o.alias {
			unknown++
		}
	}
	list = append(list, fmt.Sprint("stats ", m.unmatched, " ", m.reused+uint64(len(m.early)), " ", unknown))
	slices.Sort(list)
	return list
}

func linesOf(s *Snapshot) (list []string) {
	pid := func(i int) uint32 { return s.Processes[i].PID }
	for _, p := range s.Processes {
		for _, t := range p.Totals {
			list = append(list, fmt.Sprint("total ", p.PID, " ", t.Device, " ", t.Kind, " ", [4]uint64{t.LiveObjects, t.LiveBytes, t.AllocObjects, t.AllocBytes}))
		}
	}
	for _, r := range s.Releases {
		list = append(list, fmt.Sprint("release ", pid(r.Process), " ", r.Cause, " ", [2]uint64{r.Objects, r.Bytes}))
	}
	for _, p := range s.Pools {
		list = append(list, fmt.Sprint("pool ", pid(p.Process), " ", p.Handle, " ", p.Device, " ", p.Objects, " ", p.Used, " ", p.Reserve, " ", p.Threshold, " ", p.Destroyed))
	}
	list = append(list, fmt.Sprint("stats ", s.Stats.UnmatchedFrees, " ", s.Stats.Reused, " ", s.Stats.UnknownSizes))
	slices.Sort(list)
	return list
}

// randomEvent returns an event as a driver could send it, with few different numbers.
func randomEvent(rng *rand.Rand) Event {
	ops := []Op{Alloc, Alloc, Alloc, Free, Free, Alias, Map, Map, Unmap, Retain, Export, ContextRetain, ContextRelease, ContextReset, ContextDestroy, PoolCreate, PoolDestroy, PoolTrim, PoolThreshold, PoolSelect}
	pick := func(n uint64) uint64 { return rng.Uint64N(n) }
	e := Event{
		Op: ops[pick(uint64(len(ops)))], PID: uint32(1 + pick(3)), TID: uint32(pick(5)), Device: int32(pick(3)) - 1,
		Stack: pick(3), Address: 1 + pick(12), Size: 1 + pick(9), Context: pick(4), Handle: pick(5), API: "a",
	}
	switch e.Op {
	case Alloc, Alias, Free:
		kind := []struct {
			Kind
			Space
		}{
			{Device, Addresses}, {Pinned, Addresses}, {Async, Addresses}, {Async, Addresses}, {Imported, Addresses}, {Registered, Registers},
			{Array, Arrays}, {Imported, Externals}, {VMM, Physical}, {VMM, Physical}, {Imported, Physical},
		}[pick(11)]
		e.Kind, e.Space = kind.Kind, kind.Space
		if e.Space == Physical {
			e.Address = 1 + pick(5)
		}
		switch pick(8) {
		case 0:
			e.Size = UnknownSize
		case 1:
			e.Size = 0
		}
	case Map, Unmap:
		e.Address = 16 * (1 + pick(8))
		e.Size = 16 * (1 + pick(4))
	case Retain:
		e.Address = 16 + pick(150)
		e.Handle++
	case Export:
		e.Handle++
	case ContextRetain, ContextRelease, ContextReset:
		e.Device = int32(pick(2))
		e.Context = uint64(1 + e.Device)
		if pick(4) != 0 {
			e.Op = ContextRetain
		}
	case ContextDestroy:
		e.Context = 3
	}
	return e
}

func TestTheBooksAgreeWithASlowModel(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		l, m, w := New(Options{Begin: 10}), newModel(), newWitness(t)
		l.Observe(w)
		l.Tell(Process{PID: old, Begin: 10})
		now := uint64(11)
		for step := range 2500 {
			e := randomEvent(rng)
			now++
			e.Time = now
			l.Apply(&e)
			// A pool that ended with a free does not come back when the free fails.
			if o := m.at(e.PID, e.Space, e.Address); (e.Op == Free || e.Op == Unmap) && rng.Uint64N(3) == 0 && (o == nil || o.pool == nil || !o.pool.destroyed) {
				l.Apply(&Event{Op: FreeFailed, PID: e.PID, TID: e.TID, Result: 1, Time: now, Address: e.Address})
			} else {
				m.apply(e)
			}
			if step%20 != 0 {
				continue
			}
			if got, want := linesOf(l.Snapshot(now, time.Time{})), m.lines(); !slices.Equal(got, want) {
				in := func(list []string) func(string) bool {
					return func(x string) bool { return slices.Contains(list, x) }
				}
				t.Fatalf("seed %d step %d, after %+v: books %q, model %q", seed, step, e,
					slices.DeleteFunc(slices.Clone(got), in(want)), slices.DeleteFunc(want, in(got)))
			}
		}
		checkBooks(t, l.Snapshot(now, time.Time{}))
		checkLedger(t, l)
		w.compare(l)
	}
}
