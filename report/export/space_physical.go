// SPDX-License-Identifier: Apache-2.0

package export

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// physical is memory of the virtual memory API. It lives while it has handles or is mapped.
type physical struct {
	id         uint32
	x          extent // size, stack, API, device and time of its creation
	references uint64 // of all handles
	mapped     bool   // there is a segment for it: the first of its mappings
}

func (s *space) create(e *ledger.Event) {
	s.dropHandle(e.Address)
	if len(s.handles) >= maxExtents || len(s.memories) >= maxExtents {
		s.left++
		return
	}
	size := e.Size
	if size > maxSize {
		size = 0 // its mapping tells
	}
	s.lastMemory++
	m := &physical{
		id: s.lastMemory, references: 1,
		x: extent{size: size, stack: e.Stack, time: e.Time, api: e.API, device: deviceOf(e.Device)},
	}
	s.handles[e.Address], s.memories[m.id] = m, m
}

func (s *space) dropHandle(handle uint64) {
	if m := s.handles[handle]; m != nil {
		delete(s.handles, handle)
		m.references = 0
		s.settle(m)
	}
}

func (s *space) settle(m *physical) {
	if m.references == 0 && !m.mapped {
		delete(s.memories, m.id)
	}
}

func (s *space) release(e *ledger.Event) {
	m := s.handles[e.Address]
	if m == nil {
		return
	}
	if m.references--; m.references == 0 {
		delete(s.handles, e.Address)
		s.settle(m)
	}
	s.remember(e, undo{physical: []*physical{m}})
}

// undoRelease gives a released reference back.
func (s *space) undoRelease(u undo) {
	for _, m := range u.physical {
		if other := s.handles[u.address]; other != nil && other != m {
			continue // the handle was handed out again
		}
		s.handles[u.address], s.memories[m.id] = m, m
		m.references++
	}
}

func (s *space) retain(e *ledger.Event) {
	g := s.segments.at(e.Address)
	if g == nil || g.class != mapped || e.Handle == 0 || len(s.handles) >= maxExtents {
		return
	}
	m := s.memories[g.memory]
	if m == nil {
		return
	}
	if s.handles[e.Handle] != m {
		s.dropHandle(e.Handle)
		s.handles[e.Handle] = m
	}
	m.references++
}

// mapMemory adds a segment for memory that has none yet: what is mapped twice is there once.
func (s *space) mapMemory(e *ledger.Event) {
	m := s.handles[e.Handle]
	if m == nil || m.mapped || e.Size == 0 || e.Size > maxSize {
		return
	}
	x := m.x
	x.start, x.size, x.class, x.memory, x.time = e.Address, e.Size, mapped, m.id, e.Time
	if x.start == 0 || !s.fits(&x, addressEnd) {
		return
	}
	s.allocSegment(x)
	m.mapped = true
	m.x.size = max(m.x.size, e.Size)
}

func (s *space) unmap(e *ledger.Event) {
	if e.Address == 0 || e.Size == 0 || e.Size > maxSize || e.Address >= addressEnd {
		return
	}
	end := e.Address + e.Size
	var list []extent
	for g := range s.segments.from(e.Address) {
		if g.start >= end {
			break
		}
		if g.class == mapped && g.start >= e.Address && g.end() <= end {
			list = append(list, *g)
		}
	}
	if len(list) == 0 { // mapped before the attach
		s.remember(e, undo{})
		if g := s.segments.at(e.Address); g != nil && g.guessed() {
			s.freeOlder(e.Address, e.Time)
		}
		return
	}
	u := undo{list: list}
	for i := range list {
		x := &list[i]
		u.physical = append(u.physical, s.memories[x.memory])
		s.segments.cut(x.start, x.end())
		s.endSegment(x, e.Time)
	}
	s.remember(e, u)
}

// unmapped notes that the segment of some physical memory ended.
func (s *space) unmapped(x *extent) {
	if m := s.memories[x.memory]; m != nil {
		m.mapped = false
		s.settle(m)
	}
}

// primary is the primary context of a device.
type primary struct {
	context    uint64
	references uint64
	whole      bool // all references were seen
}

// contextEvent ends what contexts own when they end, by the rules of the ledger.
func (s *space) contextEvent(e *ledger.Event) {
	if e.Op == ledger.ContextDestroy {
		if e.Context != 0 {
			s.endContext(e.Time, func(x *extent) bool { return x.context == e.Context })
		}
		return
	}
	device := deviceOf(e.Device)
	if device < 0 {
		for d := range int32(maxDevices) {
			if p := s.primaries[d]; p != nil && (p.context == e.Context && e.Context != 0 || len(s.primaries) == 1) {
				device = d
				break
			}
		}
	}
	if device < 0 {
		return
	}
	p := s.primaries[device]
	if p == nil {
		p = &primary{whole: e.Op == ledger.ContextRetain && s.born > s.begin}
		s.primaries[device] = p
	}
	switch e.Op {
	case ledger.ContextRetain:
		p.references++
		if e.Context != 0 {
			p.context = e.Context
		}
		return
	case ledger.ContextRelease:
		if p.references > 0 {
			p.references--
		}
		if p.references > 0 || !p.whole {
			return
		}
	}
	s.endContext(e.Time, func(x *extent) bool {
		if x.context != 0 && p.context != 0 {
			return x.context == p.context
		}
		return x.device == device && (x.context == 0 || p.context == 0)
	})
	p.references, p.whole = 0, true // the next retain begins it anew
}

// endContext ends driver memory that matches. Memory of the virtual memory API belongs to no context.
func (s *space) endContext(time uint64, match func(*extent) bool) {
	var list []extent
	for g := range s.segments.from(0) {
		if g.class == whole && g.time <= time && match(g) {
			list = append(list, *g)
		}
	}
	slices.SortStableFunc(list, func(a, b extent) int { return int(a.id) - int(b.id) })
	for i := range list {
		s.segments.cut(list[i].start, list[i].end())
		s.endSegment(&list[i], time)
	}
}
