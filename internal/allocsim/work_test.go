// SPDX-License-Identifier: Apache-2.0

package allocsim

import (
	"errors"
	"math/rand"
	"testing"
)

// TestAHostileTraceEndsSoon: each of these traces needs the square of its length without a bound:
// minutes.
func TestAHostileTraceEndsSoon(t *testing.T) {
	const n, crumbled = 1 << 18, 24_000
	many := func(ops func(b *Builder, i int)) *Trace {
		b := NewBuilder(&Trace{Version: "2.6"})
		for i := range n {
			ops(b, i)
		}
		return b.Trace()
	}
	// Free memory and address space by turns, none of which suffices for a block.
	crumbs := Segment{Address: 1 << 40, Expandable: true}
	for range crumbled {
		crumbs.Parts = append(crumbs.Parts, Part{Size: largeBuffer, State: PartUnmapped}, Part{Size: largeBuffer, State: PartLive, Block: uint32(len(crumbs.Parts) / 2)})
		crumbs.Size += 2 * largeBuffer
	}
	scattered := many(func(b *Builder, i int) {
		if i < crumbled {
			b.New(Block{Requested: 512})
		} else {
			b.Add(Malloc, b.New(Block{Requested: 30 * mib}))
		}
	})
	scattered.Start = []Segment{crumbs}
	for name, c := range map[string]struct {
		trace    *Trace
		settings Settings
	}{
		"streams": {many(func(b *Builder, i int) { b.Add(Malloc, b.New(Block{Requested: 512, Stream: uint32(i)})) }), Settings{}},
		"pools": {many(func(b *Builder, i int) {
			if i < n/16 {
				b.Add(Malloc, b.New(Block{Requested: 512, Pool: uint32(i + 1)}))
			} else {
				b.Add(PoolReleased, 1)
			}
		}), Settings{}},
		"crumbs": {scattered, Settings{Expandable: true}},
	} {
		if _, err := Run(c.trace, c.settings, Options{}); !errors.Is(err, errTooMuchWork) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestATrainingNeedsAFractionOfTheWork: the bound is far from what programs need.
func TestATrainingNeedsAFractionOfTheWork(t *testing.T) {
	trace := training(200_000, rand.New(rand.NewSource(1)))
	for _, s := range []Settings{{}, {Expandable: true}, {MaxSplit: 32 * mib}, {EmptyEvery: 3}, {Expandable: true, EmptyEvery: 3}} {
		var left int64
		if _, err := run(trace, s, Options{}, func(a *allocator, op int, piece int32) error { left = a.work; return nil }); err != nil {
			t.Fatal(err)
		}
		if used := workFor(trace) - left; used > int64(3*len(trace.Ops)) {
			t.Errorf("%s: %d for %d operations", s, used, len(trace.Ops))
		}
	}
}
