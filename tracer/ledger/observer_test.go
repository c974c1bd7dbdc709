// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"
)

// witness is an Observer that keeps what is live by what it is told.
type witness struct {
	t        *testing.T
	live     map[witnessKey]Allocation
	mappings map[[2]uint64]Mapping // by process and start
	pids     map[uint32]uint32     // by process
	log      []string
}

func newWitness(t *testing.T) *witness {
	return &witness{t: t, live: map[witnessKey]Allocation{}, mappings: map[[2]uint64]Mapping{}, pids: map[uint32]uint32{}}
}

func (w *witness) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

// witnessKey is what an allocation is known by.
type witnessKey struct {
	liveKey
	process uint32
}

func keyOf(a *Allocation) witnessKey { return witnessKey{liveKey{a.Address, a.Space}, a.Process} }

func (w *witness) Began(process, pid uint32) {
	w.note("began %d", pid)
	w.pids[process] = pid
	// what another process had at its end, which has left the books
	maps.DeleteFunc(w.live, func(key witnessKey, _ Allocation) bool { return key.process == process })
	maps.DeleteFunc(w.mappings, func(key [2]uint64, _ Mapping) bool { return key[0] == uint64(process) })
}

// asNow returns what was told of memory, without the stack if it has lost that since.
func asNow(told, now Allocation) Allocation {
	if now.Stack == 0 {
		told.Stack = 0
	}
	return told
}

// hasEntries reports whether a process has its entries.
func hasEntries(l *Ledger, number uint32) bool {
	return slices.ContainsFunc(l.procs, func(p *process) bool { return p.number == number && !p.purged })
}

func (w *witness) Allocated(a Allocation, time uint64) {
	w.note("allocated %x +%d at %d of %d", a.Address, a.Size, time, a.Time)
	if _, lives := w.live[keyOf(&a)]; lives || w.pids[a.Process] != a.PID {
		w.t.Errorf("%+v is allocated twice, or by another process", a)
	}
	w.live[keyOf(&a)] = a
}

func (w *witness) Freed(a Allocation, time uint64) {
	w.note("freed %x at %d", a.Address, time)
	known, lives := w.live[keyOf(&a)]
	if known.Size == 0 || a.Space == Physical {
		known.Size = a.Size // it grows with its mappings
	}
	if !lives || asNow(known, a) != a {
		w.t.Errorf("freed is %+v, but allocated was %+v", a, known)
	}
	delete(w.live, keyOf(&a))
}

func (w *witness) Mapped(m Mapping, time uint64) {
	w.note("mapped %x to %x at %d of %d", m.Start, m.End, time, m.Time)
	w.mappings[[2]uint64{uint64(m.Memory.Process), m.Start}] = m
	if _, lives := w.live[keyOf(&m.Memory)]; !lives {
		w.t.Errorf("mapped is %+v, which does not live", m)
	}
}

func (w *witness) Unmapped(m Mapping, time uint64) {
	w.note("unmapped %x to %x at %d", m.Start, m.End, time)
	key := [2]uint64{uint64(m.Memory.Process), m.Start}
	if x, ok := w.mappings[key]; !ok || x.End != m.End || x.Time != m.Time {
		w.t.Errorf("unmapped is %+v, but mapped was %+v", m, x)
	}
	delete(w.mappings, key)
}

func (w *witness) Moved(a Allocation) {
	w.note("moved %x to %d", a.Address, a.Device)
	known := w.live[keyOf(&a)]
	known.Device = a.Device
	if asNow(known, a) != a {
		w.t.Errorf("moved is %+v, but live %+v", a, known)
	}
	w.live[keyOf(&a)] = a
}

func (w *witness) Unmatched(a Allocation, time uint64) {
	w.note("unmatched %x at %d", a.Address, time)
}

// compare tests that the witness knows what lives in processes that still have their entries.
func (w *witness) compare(l *Ledger) {
	w.t.Helper()
	live := maps.Clone(w.live)
	mappings := maps.Clone(w.mappings)
	for _, p := range l.procs {
		for _, n := range p.live {
			if p.sites[p.entries.at(n).site].kind == aliased {
				continue
			}
			a := p.allocation(n)
			if known := asNow(live[keyOf(&a)], a); known != a && (known.Size == a.Size || a.Space != Physical) {
				w.t.Errorf("%+v lives, told was %+v", a, known)
			}
			delete(live, keyOf(&a))
		}
		v := p.physical
		if v == nil {
			continue
		}
		for x := range v.mappings.From(0) {
			if x.Value.memory == 0 {
				continue
			}
			if m := mappings[[2]uint64{uint64(p.number), x.Start}]; m.End != x.End || m.Time != x.Value.time || m.Memory.Address != x.Value.memory {
				w.t.Errorf("%+v is mapped, told was %+v", *x, m)
			}
			delete(mappings, [2]uint64{uint64(p.number), x.Start})
		}
	}
	for key, a := range live {
		if hasEntries(l, key.process) {
			w.t.Errorf("%+v does not live", a)
		}
	}
	for key, m := range mappings {
		if hasEntries(l, uint32(key[0])) {
			w.t.Errorf("%+v is not mapped", m)
		}
	}
}

func TestAnObserverIsTold(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []Event
		want   []string
	}{
		{"a failed free makes it live again, an unknown one is unmatched", []Event{
			{Op: Alloc, Kind: Device, Time: 1, Address: 0xa, Size: 5},
			{Op: Free, Time: 2, Address: 0xa},
			{Op: FreeFailed, Time: 3, Result: 1},
			{Op: Free, Time: 4, Address: 0xb},
		}, []string{"began 7", "allocated a +5 at 1 of 1", "freed a at 2", "allocated a +5 at 3 of 1", "unmatched b at 4"}},
		{"an address that is allocated again was freed", []Event{
			{Op: Alloc, Kind: Device, Time: 1, Address: 0xa, Size: 5},
			{Op: Alloc, Kind: Device, Time: 2, Address: 0xa, Size: 6},
		}, []string{"began 7", "allocated a +5 at 1 of 1", "freed a at 2", "allocated a +6 at 2 of 2"}},
		{"physical memory has a number, and ends with its last mapping", []Event{
			{Op: Alloc, Kind: VMM, Space: Physical, Time: 1, Address: 0xa, Size: 5},
			{Op: Map, Time: 2, Address: 0x100, Size: 5, Handle: 0xa},
			{Op: Free, Space: Physical, Time: 3, Address: 0xa},
			{Op: Unmap, Time: 4, Address: 0x100, Size: 5},
			{Op: FreeFailed, Time: 5, Result: 1},
			{Op: Unmap, Time: 6, Address: 0x200, Size: 5},
		}, []string{
			"began 7", "allocated 1 +5 at 1 of 1", "mapped 100 to 105 at 2 of 2", "unmapped 100 to 105 at 4", "freed 1 at 4",
			"allocated 1 +5 at 5 of 1", "mapped 100 to 105 at 5 of 2", "unmatched 200 at 6",
		}},
		{"a context ends what is in it", []Event{
			{Op: Alloc, Kind: Device, Time: 1, Address: 0xa, Size: 5, Context: 9},
			{Op: Alloc, Kind: Pinned, Time: 1, Address: 0xb, Size: 6, Context: 8},
			{Op: ContextDestroy, Time: 2, Context: 9},
		}, []string{"began 7", "allocated a +5 at 1 of 1", "allocated b +6 at 1 of 1", "freed a at 2"}},
		{"blocks of PyTorch, and a device that is learned", []Event{
			{Op: Alloc, Kind: Device, Device: UnknownDevice, Time: 1, Address: 0xa, Size: 5},
			{Op: Alloc, Kind: Tensor, Space: Blocks, Time: 2, Address: 0xa, Size: 3},
			{Op: Learn, Device: 3, Time: 3},
			{Op: Free, Kind: Tensor, Space: Blocks, Time: 4, Address: 0xa},
		}, []string{"began 7", "allocated a +5 at 1 of 1", "allocated a +3 at 2 of 2", "moved a to 3", "freed a at 4"}},
		{"a process ends with what it has; the next one with its pid begins with nothing", []Event{
			{Op: Alloc, Kind: Device, Time: 1, Address: 0xa, Size: 5},
			{Op: Exec, Time: 2},
			{Op: Alloc, Kind: Device, Time: 3, Address: 0xa, Size: 6},
		}, []string{"began 7", "allocated a +5 at 1 of 1", "began 7", "allocated a +6 at 3 of 3"}},
		{"an alias is no allocation", []Event{
			{Op: Alias, Time: 1, Address: 0xa},
			{Op: Free, Time: 2, Address: 0xa},
		}, []string{"began 7"}},
	} {
		l, w := New(Options{}), newWitness(t)
		l.Observe(w)
		for _, e := range c.events {
			e.PID, e.TID = 7, 7
			l.Apply(&e)
		}
		if !slices.Equal(w.log, c.want) {
			t.Errorf("%s: told was\n%q, want\n%q", c.name, w.log, c.want)
		}
		w.compare(l)
	}
}

// An observer knows what lives, whatever comes.
func TestAnObserverKnowsWhatLives(t *testing.T) {
	var told int
	for _, data := range randomSequences() {
		w := newWitness(t)
		l, _ := applyHostile(t, data, w)
		w.compare(l)
		told += len(w.log)
		if t.Failed() {
			return
		}
	}
	if told < 5000 {
		t.Errorf("only %d times was something told", told)
	}
}
