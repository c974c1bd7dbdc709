// SPDX-License-Identifier: Apache-2.0

package survivors

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// model is an allocator that gives freed addresses out again at once, the latest first, and counts
// as PyTorch's does.
type model struct {
	rng    *rand.Rand
	live   map[uint64]block
	free   map[uint64][]uint64 // by size: addresses
	next   uint64
	given  int
	counts allocator.Counters
}

// block is a live one; number is that of its allocation.
type block struct {
	size   uint64
	number int
}

func newModel(seed uint64) *model {
	return &model{rng: rand.New(rand.NewPCG(seed, 7)), live: map[uint64]block{}, free: map[uint64][]uint64{}, next: 1 << 40}
}

func kind(size uint64) int {
	if size <= ledger.LargestSmall {
		return allocator.Small
	}
	return allocator.Large
}

func add(s *allocator.Stat, n uint64) { s.Current, s.Allocated = s.Current+n, s.Allocated+n }
func sub(s *allocator.Stat, n uint64) { s.Current, s.Freed = s.Current-n, s.Freed+n }

func (m *model) alloc(size uint64) uint64 {
	p := &m.counts.Pools[kind(size)]
	var at uint64
	if list := m.free[size]; len(list) > 0 {
		at, m.free[size] = list[len(list)-1], list[:len(list)-1]
	} else {
		at = m.next
		m.next += size
		add(&p.Segments, 1)
		add(&p.Reserved, size)
	}
	m.given++
	m.live[at] = block{size, m.given}
	add(&p.Allocations, 1)
	add(&p.Allocated, size)
	return at
}

func (m *model) release(at uint64) {
	b := m.live[at]
	delete(m.live, at)
	m.free[b.size] = append(m.free[b.size], at)
	p := &m.counts.Pools[kind(b.size)]
	sub(&p.Allocations, 1)
	sub(&p.Allocated, b.size)
}

// reset is torch.cuda.reset_accumulated_memory_stats().
func (m *model) reset() {
	for i := range m.counts.Pools {
		p := &m.counts.Pools[i]
		for _, s := range [...]*allocator.Stat{&p.Allocations, &p.Segments, &p.Allocated, &p.Reserved} {
			s.Allocated, s.Freed = 0, 0
		}
	}
}

var sizes = []uint64{512, 4096, 1 << 20, 1<<20 + 512, 2 << 20, 64 << 20, 1 << 30}

// any returns the address of a live block of a kind of pools, 0 without one.
func (m *model) any(of int) uint64 {
	for at, b := range m.live { // in any order
		if kind(b.size) == of {
			return at
		}
	}
	return 0
}

// pause does what a program may do while nobody sees it.
func (m *model) pause(style int) {
	for range m.rng.IntN(40) {
		size := sizes[m.rng.IntN(len(sizes))]
		if style == 1 { // only small blocks come and go
			size = sizes[m.rng.IntN(3)]
		}
		at := m.any(kind(size))
		switch {
		case style == 0: // allocates only
			m.alloc(size)
		case style == 2 && at != 0: // frees and allocates the same again, at the same address
			size = m.live[at].size
			m.release(at)
			if m.alloc(size) != at {
				panic("the model gives out another address")
			}
		case m.rng.IntN(2) == 0 && at != 0:
			m.release(at)
		default:
			m.alloc(size)
		}
	}
	if style == 3 && m.rng.IntN(3) == 0 {
		m.reset()
		m.pause(2)
	}
}

// TestNoBlockThatWasFreedIsKept: whatever a program does in a pause, a block that is said to have
// stayed is the same allocation as before, though freed addresses are given out again at once.
func TestNoBlockThatWasFreedIsKept(t *testing.T) {
	const styles = 4
	var kept, fooled [styles]int
	for seed := range uint64(4000) {
		m, style := newModel(seed), int(seed%styles)
		for range 30 {
			m.alloc(sizes[m.rng.IntN(len(sizes))])
		}
		if seed%7 == 0 {
			m.reset()
		}
		before, live := m.counts, map[uint64]block{}
		for at, b := range m.live {
			live[at] = b
		}
		m.pause(style)
		x := ledger.Stayed{}
		x.Small, x.Large = Bounds(&before, &m.counts, [2]bool{true, true})
		for at, b := range live {
			now, lives := m.live[at]
			if lives && now.size == b.size && now.number != b.number {
				fooled[style]++ // an old stack would be wrong, and the address and size look as before
			}
			if !x.Has(b.size) {
				continue
			}
			kept[style]++
			if !lives || now.number != b.number {
				t.Fatalf("seed %d: a block of %d bytes at %#x is kept, but was freed; bounds %d and %d", seed, b.size, at, x.Small, x.Large)
			}
		}
	}
	t.Logf("kept by style %v; other blocks at the same address with the same size %v", kept, fooled)
	for style, n := range kept {
		if n == 0 || style > 1 && fooled[style] == 0 {
			t.Errorf("style %d: %d blocks were kept, at the address of %d was another one: the model tests nothing", style, n, fooled[style])
		}
	}
}

func TestBounds(t *testing.T) {
	counts := func(freed, freedBytes uint64) allocator.PoolCounters {
		return allocator.PoolCounters{
			Allocations: allocator.Stat{Current: 10, Allocated: 10 + freed, Freed: freed},
			Allocated:   allocator.Stat{Current: 1000, Allocated: 1000 + freedBytes, Freed: freedBytes},
		}
	}
	steady := [2]bool{true, true}
	before := &allocator.Counters{Pools: [2]allocator.PoolCounters{counts(100, 5000), counts(3, 900)}}
	for name, c := range map[string]struct {
		small, large         allocator.PoolCounters
		steady               [2]bool
		wantSmall, wantLarge uint64
	}{
		"nothing was freed":        {counts(100, 5000), counts(3, 900), steady, 0, 0},
		"some small blocks were":   {counts(120, 5600), counts(3, 900), steady, 600, 0},
		"the count moved first":    {counts(101, 5000), counts(3, 900), steady, 1, 0},
		"large ones too":           {counts(120, 5600), counts(4, 1000), steady, 600, 100},
		"small ones in motion":     {counts(120, 5600), counts(3, 900), [2]bool{false, true}, ledger.Unknown, 0},
		"sums were set back":       {counts(20, 600), counts(3, 900), steady, ledger.Unknown, 0},
		"a word that does not fit": {counts(100, 5000), allocator.PoolCounters{Allocations: allocator.Stat{Current: 10, Allocated: 14, Freed: 3}}, steady, 0, ledger.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			small, large := Bounds(before, &allocator.Counters{Pools: [2]allocator.PoolCounters{c.small, c.large}}, c.steady)
			if fmt.Sprint(small, large) != fmt.Sprint(c.wantSmall, c.wantLarge) {
				t.Errorf("got %d and %d, want %d and %d", small, large, c.wantSmall, c.wantLarge)
			}
		})
	}
}
