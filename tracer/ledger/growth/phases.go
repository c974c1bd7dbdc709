// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// MaxPhases is the most values of Phases.View.
const MaxPhases = 128

// firstSlice is the length in ns after which a phase is cut, until there are too many.
const firstSlice = 1e9

// Phase is a time in which allocations were traced, or several of them.
type Phase struct {
	From, To uint64 // ns
	Traced   uint64 // ns of it in which they were traced
	Floor    uint64 // least bytes that lived then; math.MaxUint64: unknown
}

// Phases are the times in which allocations that are not traced all the time were. Long ones are
// cut in slices, so that they show the floor over time. When there are too many, two become one.
type Phases struct {
	list  []Phase // ended, oldest first
	now   Phase   // the one that goes on; Traced is not set; From is 0 if there is none
	slice uint64
}

// Open reports whether a phase goes on.
func (x *Phases) Open() bool { return x.now.From != 0 }

// Reach notes the bytes that live at a time. It begins a phase if none goes on.
func (x *Phases) Reach(time, live uint64) {
	switch {
	case !x.Open():
		x.now = Phase{From: max(time, 1), Floor: math.MaxUint64}
		if n := len(x.list); n > 0 { // events come nearly in order
			x.now.From = max(x.now.From, x.list[n-1].To)
		}
		x.now.To = x.now.From
	case time >= x.now.From+max(x.slice, firstSlice):
		x.End(time)
		x.now = Phase{From: time, To: time, Floor: math.MaxUint64}
	}
	x.now.To = max(x.now.To, time)
	x.now.Floor = min(x.now.Floor, live)
}

// End ends the phase that goes on, and reports whether there is one that began before.
func (x *Phases) End(time uint64) bool {
	p := x.now
	if !x.Open() || p.From > time {
		x.now = Phase{}
		return false
	}
	p.To = max(p.To, time)
	p.Traced = p.To - p.From
	x.now = Phase{}
	if len(x.list) == MaxPhases {
		x.halve()
	}
	x.list = append(x.list, p)
	return true
}

// halve makes one phase of each two.
func (x *Phases) halve() {
	x.slice = 2 * max(x.slice, firstSlice)
	half := x.list[:0]
	for i := 0; i+1 < len(x.list); i += 2 {
		a, b := x.list[i], x.list[i+1]
		half = append(half, Phase{a.From, b.To, a.Traced + b.Traced, min(a.Floor, b.Floor)})
	}
	x.list = half
}

// View returns the phases up to a time, oldest first, in ns after the session's begin.
func (x *Phases) View(begin, time uint64) []Phase {
	list := make([]Phase, 0, len(x.list)+1)
	all := x.list
	if x.Open() {
		p := x.now
		p.To = max(p.To, time)
		p.Traced = p.To - p.From
		all = append(all[:len(all):len(all)], p)
	}
	for _, p := range all {
		p.From, p.To = minus(p.From, begin), minus(p.To, begin)
		p.Traced = min(p.Traced, p.To-p.From)
		list = append(list, p)
	}
	return list
}

// Any reports whether there was a phase.
func (x *Phases) Any() bool { return x.Open() || len(x.list) > 0 }

// Carry writes or reads the phases.
func (x *Phases) Carry(c *codec.Codec) {
	codec.Num(c, &x.slice)
	before := uint64(0)
	carry := func(p *Phase) {
		from, length, floor := p.From-before, p.To-p.From, p.Floor+1
		codec.Nums(c, &from, &length, &p.Traced, &floor)
		p.From, p.Floor = before+from, floor-1
		p.To = p.From + length
		c.Check(p.From >= before && p.To >= p.From)
		before = p.To
	}
	codec.List(c, &x.list, MaxPhases, carry)
	open := x.Open()
	if c.Flags(&open); open {
		carry(&x.now)
	}
}
