// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"
)

// openWalk notes what a process has now.
func (p *torch) openWalk(time uint64) {
	if p.walks == nil {
		p.walks = &walks{}
	}
	o := &openWalk{time: time, freed: map[liveKey]freedEntry{}, given: map[uint64]struct{}{}}
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device >= 0 && t.now.reserved != 0 {
			state := p.stateOf(t)
			totals := WalkTotals{Device: t.device, Allocated: max(state.allocated, state.live.bytes)}
			totals.Older = totals.Allocated - state.live.bytes
			o.allocators = append(o.allocators, totals)
		}
	}
	p.walks.open = o
}

// dropOpenWalk forgets that a walk is under way.
func (p *torch) dropOpenWalk() {
	if p.walks != nil && p.walks.open != nil {
		p.walks.open = nil
	}
}

// closeWalk ends what openWalk began. A walk that was not opened shows the present state.
func (p *torch) closeWalk(time uint64) openWalk {
	if w := p.walks; w == nil || w.open == nil || w.open.time != time {
		p.openWalk(time)
	}
	w := p.walks
	o := *w.open
	w.open = nil
	return o
}

// addWalk books a walk.
func (p *process) addWalk(in *Walk) {
	opened := p.closeWalk(in.Time)
	p.spend(64*len(in.Storages) + 256*len(in.Holders) + 64*len(opened.freed))
	if in.Failure != "" && len(p.walks.list) > 0 { // what an earlier walk found is worth more
		return
	}
	j := p.join(in, &opened)
	switch last := p.walks.latest(); {
	case in.Failure != "" || !p.gaveUp(&opened) && !j.walked.mostlyFreed():
	case last != nil && j.walked.share() < last.share()/2:
		return
	case last == nil && j.walked.share() < leastShare:
		p.keepWalk(Walked{Time: in.Time, Took: in.Took, Failure: WalkFreed})
		return
	}
	p.walks.sites = j.heldBy
	p.keepHeldBlocks(in, j.to)
	p.keepWalk(j.walked)
	p.keepOlder(&j)
}

// MaxWaste is how many lines of waste the books keep of a walk.
const MaxWaste = 64

const (
	// leastShare is what the first walk of a process must find of its memory if the process freed
	// most of it while it was read.
	leastShare = 0.1
)

// Reasons in Walked.Failure. They are codes, which captures keep; captures of older versions have
// sentences instead, as have failures that the system has words for. Package report has the
// sentences.
const (
	WalkNoPython  = "no_python"  // no Python interpreter is in the process
	WalkNoTensors = "no_tensors" // nor a tensor of PyTorch in its Python
	WalkNoTime    = "no_time"    // other walks took the time that there was
	WalkUnended   = "unended"    // it has not ended yet
	WalkCanceled  = "canceled"   // the session ended before
	WalkFreed     = "freed"      // the process freed its memory, or ended, meanwhile
)

// gaveUp reports whether a process ended since a walk began, or freed most of its memory: one that
// ends with an uncaught error does so while it is read.
func (p *torch) gaveUp(opened *openWalk) bool {
	var then, now uint64
	for i := range opened.allocators {
		then += opened.allocators[i].Allocated
	}
	for i := range p.tensors {
		if t := &p.tensors[i]; totalsOn(opened.allocators, t.device) != nil {
			now += t.now.allocated
		}
	}
	return p.End != 0 || now < then/2
}

// latest returns the latest walk that found holders, nil without one.
func (w *walks) latest() *Walked {
	if n := len(w.list); n > 0 && w.list[n-1].Failure == "" {
		return &w.list[n-1]
	}
	return nil
}

// mostlyFreed reports whether most of what a walk found was freed before it was booked.
func (w *Walked) mostlyFreed() bool {
	var held, excess uint64
	for i := range w.Allocators {
		held, excess = held+w.Allocators[i].Held, excess+w.Allocators[i].Excess
	}
	return excess > held
}

// share returns which part of the allocators' memory a walk found; 1 if nothing is known of them.
func (w *Walked) share() float64 {
	var held, all uint64
	for i := range w.Allocators {
		held, all = held+w.Allocators[i].Held, all+w.Allocators[i].Allocated
	}
	switch {
	case all == 0 && w.mostlyFreed():
		return 0
	case all == 0:
		return 1
	}
	return float64(held) / float64(all)
}

// keepWalk adds a walk to those of a process. Beyond maxWalks, it drops the one nearest to its
// neighbors in time; if tableHeld has no room, the latest. It keeps the first.
func (p *process) keepWalk(w Walked) {
	drop := func(i int) {
		p.giveAll(tableHeld, len(p.walks.list[i].Held))
		p.walks.list = slices.Delete(p.walks.list, i, i+1)
	}
	if len(p.walks.list) == 1 && p.walks.list[0].Failure != "" {
		drop(0)
	}
	for len(p.walks.list) >= maxWalks {
		drop(p.walks.crowded())
	}
	taken := 0
	for taken < len(w.Held) {
		if p.room(tableHeld) {
			p.hold(tableHeld)
			taken++
		} else if len(p.walks.list) > 1 {
			drop(len(p.walks.list) - 1)
		} else {
			break
		}
	}
	w.cut(taken)
	p.walks.list = append(p.walks.list, w)
}

// crowded returns the walk whose neighbors are nearest to each other, but not the first or the
// latest.
func (w *walks) crowded() int {
	at, least := 1, uint64(math.MaxUint64)
	for i := 1; i < len(w.list)-1; i++ {
		if gap := w.list[i+1].Time - w.list[i-1].Time; gap < least {
			at, least = i, gap
		}
	}
	return at
}

// cut keeps the largest holders. What the others have counts as not found.
func (w *Walked) cut(n int) {
	for i := range w.Held[n:] {
		h := &w.Held[n+i]
		for k := range w.Allocators {
			if t := &w.Allocators[k]; t.Device == h.Device {
				t.Held, t.HeldOlder = minus(t.Held, h.Bytes-h.Driver), minus(t.HeldOlder, h.Older)
			}
		}
	}
	w.Held = w.Held[:n]
}

// noteFreed keeps what a walk under way may have seen.
func (p *heap) noteFreed(key liveKey, n uint32) {
	w := p.walks
	if w.open == nil || len(w.open.freed) >= maxFreed {
		return
	}
	b := p.entries.at(n)
	if s := p.sites[b.site]; s.kind != aliased && b.time <= w.open.time {
		w.open.freed[key] = freedEntry{s.siteKey, weightOf(s, b), b.size}
	}
}

// firstTotals returns what an allocator had at the attach: as it reported since, or what a walk
// found.
func (p *torch) firstTotals(device int32, held []Held) WalkTotals {
	for i := range p.tensors {
		if t := &p.tensors[i]; t.device == device && t.first.seen {
			return WalkTotals{Device: device, Allocated: t.first.allocated, Older: t.first.allocated}
		}
	}
	totals := WalkTotals{Device: device, Unreported: true}
	for i := range held {
		if h := &held[i]; h.Device == device {
			totals.Older += min(h.Older, maxTensors-totals.Older)
			totals.Allocated += min(minus(h.Bytes, h.Driver), maxTensors-totals.Allocated)
		}
	}
	return totals
}
