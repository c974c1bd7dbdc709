// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/tracer/ledger/intervals"
)

// blockGrain is what PyTorch rounds sizes of blocks to by default.
const blockGrain = 512

// held is a live block.
type held struct {
	size   uint64
	frames *pickle.List
	before bool // allocated before the trace, and freed in it: its stack is unknown
}

// taken is a segment, or a part of one.
type taken struct {
	frames     *pickle.List
	expandable bool
	before     bool // likewise
}

// memory is the state of one device at a moment.
type memory struct {
	blocks   map[uint64]held
	segments intervals.Set[taken]
}

// reserve replaces what a range has.
func (m *memory) reserve(start, end uint64, t taken) {
	m.release(start, end)
	m.segments.Insert(intervals.Interval[taken]{Start: start, End: end, Value: t})
}

// release ends the segments of a range, and keeps what they have outside of it.
func (m *memory) release(start, end uint64) {
	for _, x := range m.segments.Cut(start, end) {
		for _, part := range [...][2]uint64{{x.Start, min(start, x.End)}, {max(end, x.Start), x.End}} {
			if part[0] < part[1] {
				m.segments.Insert(intervals.Interval[taken]{Start: part[0], End: part[1], Value: x.Value})
			}
		}
	}
}

func (m *memory) reserved() (sum uint64) {
	for x := range m.segments.From(0) {
		sum += x.Size()
	}
	return sum
}

// addresses returns the addresses of all blocks in order.
func (m *memory) addresses() []uint64 { return slices.Sorted(maps.Keys(m.blocks)) }

// history is the state of a device at the begin of its trace, and the trace, in which each
// allocation has the size of its block as far as the state at the end shows it.
type history struct {
	device  int32
	begin   memory
	entries []entry
	end     *memory
	borders []uint64 // of the unmapped ranges of expandable segments, in order
}

// stateOf returns the state of a device at the dump.
func (p *snapshot) stateOf(device int32) *memory {
	m := &memory{blocks: map[uint64]held{}}
	if int(device) >= len(p.segments) {
		return m
	}
	for i := range p.segments[device] {
		g := &p.segments[device][i]
		m.reserve(g.start, g.end, taken{frames: g.frames, expandable: g.expandable})
		for _, b := range g.blocks {
			m.blocks[b.address] = held{size: b.size, frames: b.frames}
		}
	}
	return m
}

// historyOf undoes the trace of a device from the state at the dump.
func (p *snapshot) historyOf(device int32, traced bool) *history {
	h := &history{device: device, end: p.stateOf(device), begin: *p.stateOf(device)}
	if !traced || int(device) >= len(p.traces) {
		return h
	}
	h.entries = slices.Clone(p.traces[device])
	for i := len(h.entries) - 1; i >= 0; i-- {
		h.undo(&h.entries[i])
	}
	slices.Sort(h.borders)
	h.borders = slices.Compact(h.borders)
	return h
}

func (h *history) undo(e *entry) {
	m := &h.begin
	end := e.address + e.size
	switch e.action {
	case alloc:
		e.size = (e.size + blockGrain - 1) &^ (blockGrain - 1)
		if b, live := m.blocks[e.address]; live {
			e.size = b.size
		}
		delete(m.blocks, e.address)
	case freeRequested:
		m.blocks[e.address] = held{size: (e.size + blockGrain - 1) &^ (blockGrain - 1), before: true}
	case segmentAlloc, segmentMap:
		m.release(e.address, end)
	case segmentFree:
		m.reserve(e.address, end, taken{before: true})
	case segmentUnmap:
		m.reserve(e.address, end, taken{before: true, expandable: true})
		h.borders = append(h.borders, e.address, end)
	}
}

// redo applies an entry to a state.
func (m *memory) redo(e *entry) {
	end := e.address + e.size
	switch e.action {
	case alloc:
		m.blocks[e.address] = held{size: e.size, frames: e.frames}
	case freeRequested:
		delete(m.blocks, e.address)
	case segmentAlloc, segmentMap:
		m.reserve(e.address, end, taken{frames: e.frames, expandable: e.action == segmentMap})
	case segmentFree, segmentUnmap:
		m.release(e.address, end)
	}
}

// whole reports whether the trace leads from its begin to the state at the dump. It does not if
// PyTorch did not record in between.
func (h *history) whole() bool {
	m := memory{blocks: maps.Clone(h.begin.blocks)}
	for x := range h.begin.segments.From(0) {
		m.segments.Insert(*x)
	}
	for i := range h.entries {
		m.redo(&h.entries[i])
	}
	return m.reserved() == h.end.reserved() &&
		maps.EqualFunc(m.blocks, h.end.blocks, func(a, b held) bool { return a.size == b.size })
}

// cut divides a mapped range at the borders of what is unmapped in the trace, since physical memory
// ends as a whole.
func (h *history) cut(start, end uint64, each func(start, end uint64)) {
	i, _ := slices.BinarySearchFunc(h.borders, start+1, func(a, b uint64) int { return cmp.Compare(a, b) })
	for ; i < len(h.borders) && h.borders[i] < end; i++ {
		each(start, h.borders[i])
		start = h.borders[i]
	}
	each(start, end)
}
