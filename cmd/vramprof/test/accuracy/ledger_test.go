// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// block is an allocation of a simulated program. Its number is also its stack, so the books
// identify it.
type block struct {
	kind       ledger.Kind
	space      ledger.Space
	address    uint64 // or handle
	size       uint64
	context    uint64
	thread     uint32
	stack      uint64
	handle     bool   // for VMM: not released yet
	mapped     uint64 // for VMM: the mapping's address, 0: not mapped
	index      int    // in simulation.live
	live, lost bool   // lost: an event about it was dropped
}

// simulation is a program that makes random CUDA calls, with a simulated driver, and the books that
// get its events.
type simulation struct {
	rng    *rand.Rand
	books  *ledger.Ledger
	rate   float64 // of dropped events
	time   uint64
	drops  uint64
	events uint64
	all    []*block // by stack - 1
	live   []*block
	free   map[ledger.Space][]uint64 // freed addresses, reused latest first
	next   uint64
	stacks []uint64 // contexts
}

const simulatedPID = 4242

// send sends an event to the books or drops it. If it drops the event, it marks the blocks of
// about.
func (s *simulation) send(e ledger.Event, about ...*block) {
	s.time += 1 + s.rng.Uint64N(2000)
	s.events++
	e.PID, e.Time = simulatedPID, s.time
	if s.rng.Float64() < s.rate {
		s.drops++
		for _, b := range about {
			b.lost = true
		}
		s.books.Tell(ledger.Stats{Lost: s.drops})
		return
	}
	s.books.Apply(&e)
}

func (s *simulation) address(space ledger.Space) uint64 {
	if list := s.free[space]; len(list) > 0 && s.rng.IntN(8) > 0 {
		s.free[space] = list[:len(list)-1]
		return list[len(list)-1]
	}
	s.next += 1 << 24
	return s.next
}

func (s *simulation) thread() uint32 { return 1 + uint32(s.rng.IntN(8)) }

func (s *simulation) allocate() {
	b := &block{kind: ledger.Device, thread: s.thread(), size: 1 + s.rng.Uint64N(1<<s.rng.IntN(24)), stack: uint64(len(s.all) + 1), live: true}
	switch s.rng.IntN(8) {
	case 0:
		b.kind = ledger.Managed
	case 1:
		b.kind = ledger.Pinned
	case 2:
		b.kind, b.space = ledger.Registered, ledger.Registers
	case 3:
		b.kind, b.space = ledger.Array, ledger.Arrays
	case 4:
		b.kind, b.space, b.handle = ledger.VMM, ledger.Physical, true
	case 5:
		b.kind = ledger.Async
	}
	if b.kind != ledger.VMM {
		b.context = s.stacks[s.rng.IntN(len(s.stacks))]
	}
	b.address = s.address(b.space)
	b.index = len(s.live)
	s.all, s.live = append(s.all, b), append(s.live, b)
	s.send(ledger.Event{Op: ledger.Alloc, Kind: b.kind, Space: b.space, TID: b.thread, Address: b.address, Size: b.size, Stack: b.stack, Context: b.context, API: "a"}, b)
}

// end removes a block whose memory is freed.
func (s *simulation) end(b *block) {
	b.live = false
	last := s.live[len(s.live)-1]
	s.live[b.index], last.index = last, b.index
	s.live = s.live[:len(s.live)-1]
	if b.kind != ledger.VMM {
		s.free[b.space] = append(s.free[b.space], b.address)
	}
}

func (s *simulation) release(b *block) {
	e := ledger.Event{Op: ledger.Free, Space: b.space, TID: s.thread(), Address: b.address}
	fails := s.rng.IntN(20) == 0
	if fails {
		s.send(e, b)
		e.Op, e.Result = ledger.FreeFailed, 1
		s.send(e, b)
		return
	}
	s.send(e, b)
	s.end(b)
}

// virtual performs a random operation on physical memory.
func (s *simulation) virtual(b *block) {
	const mappings = ledger.Blocks + 1 // no space of the books: addresses for mappings
	switch {
	case b.mapped == 0 && b.handle && s.rng.IntN(3) > 0:
		b.mapped = s.address(mappings)
		s.send(ledger.Event{Op: ledger.Map, TID: s.thread(), Address: b.mapped, Size: b.size, Handle: b.address}, b)
	case b.handle && s.rng.IntN(2) == 0:
		b.handle = false
		s.send(ledger.Event{Op: ledger.Free, Space: ledger.Physical, TID: s.thread(), Address: b.address}, b)
		s.free[ledger.Physical] = append(s.free[ledger.Physical], b.address)
	case b.mapped != 0:
		s.send(ledger.Event{Op: ledger.Unmap, TID: s.thread(), Address: b.mapped, Size: b.size}, b)
		s.free[mappings] = append(s.free[mappings], b.mapped)
		b.mapped = 0
	}
	if !b.handle && b.mapped == 0 {
		s.end(b)
	}
}

// destroy destroys a context with all its allocations.
func (s *simulation) destroy() {
	i := s.rng.IntN(len(s.stacks))
	var gone []*block
	for _, b := range s.live {
		if b.context == s.stacks[i] {
			gone = append(gone, b)
		}
	}
	s.send(ledger.Event{Op: ledger.ContextDestroy, TID: s.thread(), Context: s.stacks[i]}, gone...)
	for _, b := range gone {
		s.end(b)
	}
	s.next++
	s.stacks[i] = s.next
}

func (s *simulation) step() {
	switch x := s.rng.IntN(2000); {
	case x == 0:
		s.destroy()
	case len(s.live) == 0 || x < 1000 && len(s.live) < 3000:
		s.allocate()
	default:
		if b := s.live[s.rng.IntN(len(s.live))]; b.kind == ledger.VMM {
			s.virtual(b)
		} else {
			s.release(b)
		}
	}
}

// deviation is the difference between books and truth.
type deviation struct {
	bytes, wrong     uint64 // live in truth; booked too much or missing
	blocks, astray   uint64 // live in truth; wrong in the books
	events, dropped  uint64
	uncounted, stray uint64 // wrong although all of their events arrived
	silent           uint64 // moments with an error and without a counted loss
}

func (d *deviation) add(s *simulation) {
	snapshot := s.books.Snapshot(s.time, time.Time{})
	got := make([]uint64, len(s.all))
	for _, x := range snapshot.Sites {
		got[x.Stack-1] += x.LiveBytes
	}
	before := d.astray
	for i, b := range s.all {
		want := uint64(0)
		if b.live {
			want = b.size
			d.blocks++
		}
		d.bytes += want
		if got[i] == want {
			continue
		}
		off := max(got[i], want) - min(got[i], want)
		d.wrong += off
		d.astray++
		if !b.lost {
			d.uncounted += off
			d.stray++
		}
	}
	if d.astray > before && snapshot.Stats.Lost == 0 {
		d.silent++
	}
}

// TestBooksAreWrongOnlyAfterCountedLosses checks that only allocations with a lost event may be
// wrong.
func TestBooksAreWrongOnlyAfterCountedLosses(t *testing.T) {
	for _, rate := range []float64{0, 1e-5, 1e-4, 1e-3, 1e-2} {
		var d deviation
		for run := range longer(2, 40) {
			s := &simulation{
				rng: rand.New(rand.NewPCG(uint64(run), 7)), books: ledger.New(ledger.Options{Begin: 1}), rate: rate, time: 1,
				free: map[ledger.Space][]uint64{}, next: 1 << 40, stacks: []uint64{1, 2, 3, 4},
			}
			s.books.Tell(ledger.Process{PID: simulatedPID, Begin: 1})
			for range 4 {
				for range 10_000 {
					s.step()
				}
				d.add(s)
			}
			d.events += s.events
			d.dropped += s.drops
		}
		results.add(t, fmt.Sprintf("bytes of the books, %g of events dropped", rate), fmt.Sprintf("%s events, %s dropped, %s bytes in %s blocks", thousands(d.events), thousands(d.dropped), thousands(d.bytes), thousands(d.blocks)),
			fmt.Sprintf("%.2g of bytes wrong, %s blocks; %d bytes wrong without a lost event", float64(d.wrong)/float64(d.bytes), thousands(d.astray), d.uncounted))
		if d.uncounted > 0 || d.stray > 0 || d.silent > 0 || rate == 0 && d.wrong > 0 {
			t.Errorf("%+v: want no errors without a lost event", d)
		}
	}
}
