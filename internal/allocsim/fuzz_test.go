// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"
)

// check compares all that a heap counts with its pieces.
func (h *heap) check() error {
	type sums struct{ mapped, free, whole, live uint64 }
	var sum sums
	seen, freed := map[int32]bool{}, map[int32]bool{}
	for _, b := range h.unused {
		freed[b] = true
	}
	for i := range h.nodes {
		b := int32(i)
		if freed[b] || h.nodes[b].prev != none {
			continue
		}
		at := h.nodes[b].at
		before := none
		for ; b != none; b = h.nodes[b].next {
			n := &h.nodes[b]
			if freed[b] || seen[b] || n.prev != before || n.at != at || n.size == 0 {
				return fmt.Errorf("piece %d: %+v after %d at %d", b, *n, before, at)
			}
			seen[b] = true
			if before != none && h.nodes[before].state == n.state && (n.state == free || n.state == unmapped) {
				return fmt.Errorf("pieces %d and %d are not merged", before, b)
			}
			at += n.size
			before = b
			switch n.state {
			case free:
				sum.free += n.size
				_, whole := h.returnable(b)
				sum.whole += whole
				if whole > 0 != (n.place != none) {
					return fmt.Errorf("piece %d of %d returnable bytes has place %d", b, whole, n.place)
				}
			case live:
				sum.live += n.size
			}
			if n.state != unmapped {
				sum.mapped += n.size
			}
		}
	}
	if len(seen)+len(freed) != len(h.nodes) {
		return fmt.Errorf("%d pieces in segments, %d unused, of %d", len(seen), len(freed), len(h.nodes))
	}
	if got := (sums{h.reserved, h.freeBytes, h.wholeFree, h.allocated}); got != sum {
		return fmt.Errorf("counted %+v, pieces have %+v", got, sum)
	}
	return h.checkSets()
}

func (h *heap) checkSets() error {
	inSets := uint64(0)
	for _, l := range h.lists {
		var before entry
		for p := (position{}); l.free.valid(p); p = l.free.next(p) {
			e := l.free.at(p)
			if n := h.nodes[e.node]; n.state != free || n.at != e.at || n.size != e.size || e.less(before) {
				return fmt.Errorf("free set has %+v after %+v of %+v", e, before, n)
			}
			before = e
			inSets += e.size
		}
		for i, b := range l.releasable {
			if h.nodes[b].place != int32(i) || h.nodes[b].state != free {
				return fmt.Errorf("releasable has %+v", h.nodes[b])
			}
		}
		for _, b := range l.unmapped {
			if h.nodes[b].state != unmapped {
				return fmt.Errorf("unmapped has %+v", h.nodes[b])
			}
		}
	}
	if inSets != h.freeBytes {
		return fmt.Errorf("free sets have %d bytes of %d", inSets, h.freeBytes)
	}
	return nil
}

// decode makes a trace of any bytes. Where tidy, it never contradicts itself.
func decode(data []byte, tidy bool) (*Trace, Settings, Options) {
	next := func() int {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return int(b)
	}
	s := Settings{Expandable: next()&1 > 0, EmptyEvery: next() & 3, MaxSplit: uint64(next()&3) * 21 * mib, GC: float64(next()&3) / 4, Fraction: float64(next()&3) / 4}
	for i := range s.Divisions {
		s.Divisions[i] = uint16(next() & 1 * 4)
	}
	o := Options{Total: 400 * mib, Capacity: uint64(next()) * 2 * mib, Order: Order(next()%13 - 1)}
	b := newScript()
	var alive, wait []uint32
	if next()&1 > 0 {
		seg := Segment{Address: uint64(next()) << 20, Expandable: next()&1 > 0, Small: next()&1 > 0}
		for range next() & 7 {
			p := Part{Size: uint64(next()+1) * 20 * mib / 10, State: PartState(next() & 3), Block: uint32(len(b.trace.Blocks))}
			if seg.Expandable {
				p.Size *= 10
			}
			if p.State == PartUnmapped && !seg.Expandable && tidy {
				p.State = PartFree
			}
			b.New(Block{Requested: p.Size})
			if p.State == PartLive {
				alive = append(alive, p.Block)
			} else if p.State == PartWaiting {
				wait = append(wait, p.Block)
			}
			seg.Parts = append(seg.Parts, p)
			seg.Size += p.Size
		}
		if seg.Size > 0 || !tidy {
			b.trace.Start = append(b.trace.Start, seg)
		}
	}
	pick := func(from *[]uint32) (uint32, bool) {
		if len(*from) == 0 {
			return 0, false
		}
		i := next() % len(*from)
		n := (*from)[i]
		*from = append((*from)[:i], (*from)[i+1:]...)
		return n, true
	}
	for len(data) > 0 {
		kind := next()
		if !tidy && kind&0x80 > 0 {
			b.Op(Op{Kind: Kind(kind & 15), Block: uint32(next() - 2)})
			continue
		}
		switch kind % 12 {
		case 0, 1, 2, 3, 4, 11:
			n := b.New(Block{Requested: uint64(next()) << (next() % 21), Stream: uint32(next() & 1), Pool: uint32(next() & 15 / 14), Address: uint64(next()) << 21})
			if kind%12 == 11 {
				b.Add(Failed, n)
			} else {
				b.Add(Malloc, n)
				alive = append(alive, n)
			}
		case 5, 6:
			if n, ok := pick(&alive); ok {
				b.Add(Free, n)
			}
		case 7:
			if n, ok := pick(&alive); ok {
				b.Add(FreeRequested, n)
				wait = append(wait, n)
			}
		case 8:
			if n, ok := pick(&wait); ok {
				b.Add(FreeCompleted, n)
			}
		case 9:
			b.Add(EmptyCache, 0)
		case 10:
			b.Add([]Kind{Step, PoolReleased}[next()&1], 1)
		}
	}
	return b.Trace(), s, o
}

// replayBytes replays a trace and checks all after each operation.
func replayBytes(t *testing.T, data []byte) {
	for _, tidy := range []bool{true, false} {
		tr, s, o := decode(data, tidy)
		var within uint64
		r, err := run(tr, s, o, func(a *allocator, op int, _ int32) error {
			if err := a.check(); err != nil {
				t.Fatalf("after operation %d, %+v: %v", op, tr.Ops[op], err)
			}
			within = max(within, a.reserved)
			return nil
		})
		if tidy && err != nil {
			t.Fatal(err)
		}
		if len(tr.Start) == 0 && (o.Capacity > 0 && r.PeakReserved > o.Capacity) || within > r.PeakReserved && err == nil || r.PeakAllocated > r.PeakReserved {
			t.Fatalf("%+v on %+v", r, o)
		}
		Verify(tr)
		tr.Drop(func(n uint32) bool { return n&1 > 0 })
	}
}

// A hostile trace ends in an error or in figures, and what the allocator counts is what its pieces
// have after each operation.
func FuzzReplay(f *testing.F) {
	r := rand.New(rand.NewSource(1))
	for n := range 40 {
		data := make([]byte, 200+n*20)
		r.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 4096 {
			replayBytes(t, data)
		}
	})
}

// OrderMatters is promised wherever another order can give other figures.
func TestOrdersAgreeWhereOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	agree, differ := 0, 0
	sizes := []uint64{2 * mib, 3 * mib, 5 * mib, 9 * mib, 9 * mib, 11 * mib, 18 * mib}
	for range 3000 {
		b := newScript()
		var alive []uint32
		for range 3 + r.Intn(60) {
			switch k := r.Intn(12); {
			case k < 6 || len(alive) == 0:
				alive = append(alive, b.on(uint32(r.Intn(8)/7), 0, sizes[r.Intn(len(sizes))]))
			case k == 11:
				b.Add(EmptyCache, 0)
			default:
				i := r.Intn(len(alive))
				b.Add(Free, alive[i])
				alive = append(alive[:i], alive[i+1:]...)
			}
		}
		tr, o := b.Trace(), Options{Total: 300 * mib, Capacity: uint64(r.Intn(2)*(80+r.Intn(200))) * mib}
		s := []Settings{{}, {Expandable: true}, {MaxSplit: 21 * mib / 2}, {Fraction: 0.7, GC: 0.3}}[r.Intn(4)]
		first, err := Run(tr, s, o)
		if err != nil {
			t.Fatal(err)
		}
		for order := Order(1); order < Orders; order++ {
			o.Order = order
			got, err := Run(tr, s, o)
			if err != nil {
				t.Fatal(err)
			}
			if reflect.DeepEqual(got, first) {
				continue
			}
			if differ++; !first.OrderMatters {
				t.Fatalf("order %d: %+v, rising: %+v", order, got, first)
			}
		}
		if !first.OrderMatters {
			agree++
		}
	}
	t.Logf("%d traces whose order does not matter, %d replays that differ", agree, differ)
	if agree < 100 || differ < 100 {
		t.Error("the traces do not reach both")
	}
}
