// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
)

// model does what the ledger does by searching through lists. A free that fails never reaches it.
type model struct {
	objects   []*object
	handles   []*modelHandle
	maps      []*modelMap
	primaries []*modelPrimary
	pools     []*modelPool
	selected  map[string]uint64
	exports   map[uint64]uint64
	totals    map[string]*[4]uint64 // live and allocated objects and bytes
	releases  map[string]*[2]uint64
	early     []*object // dropped before their context was reported as ended
	unmatched uint64
	reused    uint64
}

type object struct {
	Event
	device     int32
	references int
	memory     bool // physical, named by handles and mappings
	alias      bool
	learns     bool
	pool       *modelPool
}

type modelHandle struct {
	pid        uint32
	number     uint64
	of         *object
	references int
}

type modelMap struct {
	pid        uint32
	start, end uint64
	of         *object // nil: an alias
}

type modelPrimary struct {
	pid        uint32
	device     int32
	context    uint64
	references int
	whole      bool
}

type modelPool struct {
	pid                               uint32
	handle                            uint64
	device                            int32
	fixed, destroyed                  bool
	objects, used, reserve, threshold uint64
}

// old is the pid of a process that is older than the attach.
const old = 1

func newModel() *model {
	return &model{selected: map[string]uint64{}, exports: map[uint64]uint64{}, totals: map[string]*[4]uint64{}, releases: map[string]*[2]uint64{}}
}

func find[T any](list []T, match func(T) bool) (found T) {
	if i := slices.IndexFunc(list, match); i >= 0 {
		found = list[i]
	}
	return found
}

func remove[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(list, func(y T) bool { return x == y })
}

func (m *model) at(pid uint32, space Space, address uint64) *object {
	return find(m.objects, func(o *object) bool {
		return !o.memory && o.PID == pid && o.Space == space && o.Address == address
	})
}

func (m *model) handle(pid uint32, number uint64) *modelHandle {
	return find(m.handles, func(h *modelHandle) bool { return h.pid == pid && h.number == number })
}

func (m *model) total(o *object) *[4]uint64 {
	key := fmt.Sprint(o.PID, " ", o.device, " ", o.Kind)
	if m.totals[key] == nil {
		m.totals[key] = &[4]uint64{}
	}
	return m.totals[key]
}

func (m *model) end(o *object) {
	m.objects = remove(m.objects, o)
	if o.alias {
		return
	}
	t := m.total(o)
	t[0]--
	t[1] -= o.Size
	if p := o.pool; p != nil {
		p.objects--
		p.used -= o.Size
		if p.destroyed {
			p.reserve = p.used
		}
	}
}

func (m *model) settle(o *object) {
	if o != nil && o.memory && slices.Contains(m.objects, o) &&
		find(m.handles, func(h *modelHandle) bool { return h.of == o }) == nil &&
		find(m.maps, func(x *modelMap) bool { return x.of == o }) == nil {
		m.end(o)
	}
}

func (m *model) dropHandle(h *modelHandle) {
	m.handles = remove(m.handles, h)
	m.settle(h.of)
}

// clear makes room for a number that the driver hands out.
func (m *model) clear(e *Event) {
	if h := m.handle(e.PID, e.Address); e.Space == Physical && h != nil {
		m.reused++
		m.dropHandle(h)
	}
	if o := m.at(e.PID, e.Space, e.Address); o != nil {
		switch {
		case o.alias:
		case o.Context != 0:
			m.early = append(m.early, o)
		default:
			m.reused++
		}
		m.end(o)
	}
}

func (m *model) apply(e Event) {
	switch e.Op {
	case Alloc:
		if e.Size == 0 {
			if e.Space == Addresses {
				return
			}
			e.Op = Alias
			m.apply(e)
			return
		}
		m.alloc(e)
	case Alias:
		if o := m.at(e.PID, e.Space, e.Address); o != nil && o.alias {
			o.references++
			return
		}
		m.clear(&e)
		m.objects = append(m.objects, &object{Event: e, device: m.device(&e), references: 1, alias: true})
	case Free:
		m.free(e)
	case Map, Unmap, Retain:
		m.mapped(e)
	case Export:
		if o := m.at(e.PID, Addresses, e.Address); o != nil && o.Size != 0 && !o.alias {
			m.exports[e.Handle] = o.Size
		}
	case ContextRetain, ContextRelease, ContextReset:
		m.primary(e)
	case ContextDestroy:
		m.endContext(e.PID, ContextDestroyed, func(o *object) bool { return o.Context == e.Context && e.Context != 0 })
	default:
		m.poolOp(e)
	}
}

func (m *model) device(e *Event) int32 {
	if p := find(m.primaries, func(p *modelPrimary) bool { return p.pid == e.PID && p.context == e.Context && e.Context != 0 }); p != nil && e.Device == UnknownDevice {
		return p.device
	}
	return e.Device
}

func (m *model) alloc(e Event) {
	if e.Kind == Imported && e.Space == Physical {
		if h := m.handle(e.PID, e.Address); h != nil {
			h.references++
			return
		}
	}
	if o := m.at(e.PID, e.Space, e.Address); o != nil && e.Kind == Imported && (o.Kind == Imported && !o.alias && o.Context == e.Context || o.alias && e.Space == Physical) {
		o.references++
		return
	}
	m.clear(&e)
	o := &object{Event: e, device: m.device(&e), references: 1, memory: e.Space == Physical}
	if e.Size == UnknownSize {
		o.Size = 0
		if e.Kind == Imported {
			o.Size = m.exports[e.Handle]
		}
		o.learns = o.Size == 0
	}
	if e.Kind == Async {
		o.pool = m.poolFor(e.PID, e.Handle, o.device)
		if o.pool.fixed {
			o.device = o.pool.device
		}
		o.pool.device = o.device
		o.pool.objects++
		o.pool.used += o.Size
		o.pool.reserve = max(o.pool.reserve, o.pool.used)
	}
	m.objects = append(m.objects, o)
	if o.memory {
		m.handles = append(m.handles, &modelHandle{e.PID, e.Address, o, 1})
	}
	t := m.total(o)
	t[0]++
	t[1] += o.Size
	t[2]++
	t[3] += o.Size
}

func (m *model) free(e Event) {
	if h := m.handle(e.PID, e.Address); e.Space == Physical && h != nil {
		if h.references--; h.references == 0 {
			m.dropHandle(h)
		}
		return
	}
	o := m.at(e.PID, e.Space, e.Address)
	if o == nil {
		m.unmatched++
	} else if o.references--; o.references == 0 {
		m.end(o)
	}
}

func (m *model) mapped(e Event) {
	end := e.Address + e.Size
	h, view := m.handle(e.PID, e.Handle), m.at(e.PID, Physical, e.Handle)
	switch e.Op {
	case Map:
		over := find(m.maps, func(x *modelMap) bool { return x.pid == e.PID && x.start < end && x.end > e.Address })
		if over != nil {
			m.reused++
			m.unmap(func(x *modelMap) bool { return x.pid == e.PID && x.start < end && x.end > e.Address })
		}
		if h != nil {
			m.maps = append(m.maps, &modelMap{e.PID, e.Address, end, h.of})
			if o := h.of; o.learns && o.Size < e.Size {
				t := m.total(o)
				t[1] += e.Size - o.Size
				t[3] += e.Size - o.Size
				o.Size = e.Size
			}
		} else if view != nil {
			m.maps = append(m.maps, &modelMap{e.PID, e.Address, end, nil})
		}
	case Unmap:
		if !m.unmap(func(x *modelMap) bool { return x.pid == e.PID && x.start >= e.Address && x.end <= end }) {
			m.unmatched++
		}
	case Retain:
		x := find(m.maps, func(x *modelMap) bool { return x.pid == e.PID && x.start <= e.Address && e.Address < x.end })
		number := Event{Op: Alias, PID: e.PID, Space: Physical, Address: e.Handle, Device: UnknownDevice}
		switch {
		case x == nil:
		case x.of == nil:
			m.apply(number)
		case h != nil && h.of == x.of:
			h.references++
		default:
			m.handles = append(m.handles, &modelHandle{e.PID, 0, x.of, 1}) // x.of must not end now
			m.clear(&number)
			m.handles[len(m.handles)-1].number = e.Handle
		}
	}
}

func (m *model) unmap(match func(*modelMap) bool) bool {
	var gone []*modelMap
	for _, x := range m.maps {
		if match(x) {
			gone = append(gone, x)
		}
	}
	m.maps = slices.DeleteFunc(m.maps, match)
	for _, x := range gone {
		m.settle(x.of)
	}
	return len(gone) > 0
}

func (m *model) primary(e Event) {
	p := find(m.primaries, func(p *modelPrimary) bool { return p.pid == e.PID && p.device == e.Device })
	if p == nil {
		p = &modelPrimary{pid: e.PID, device: e.Device, whole: e.PID != old && e.Op == ContextRetain}
		m.primaries = append(m.primaries, p)
	}
	cause := ContextReleased
	switch e.Op {
	case ContextRetain:
		p.context = e.Context
		p.references++
		m.place(e.PID, e.Context, e.Device)
		return
	case ContextRelease:
		p.references = max(0, p.references-1)
		if p.references > 0 || !p.whole {
			return
		}
	case ContextReset:
		cause = ContextWasReset
	}
	others := map[uint64]bool{}
	for _, q := range m.primaries {
		others[q.context] = others[q.context] || q.pid == e.PID
	}
	m.endContext(e.PID, cause, func(o *object) bool {
		switch {
		case o.Context == 0:
			return o.device == p.device
		case p.context != 0:
			return o.Context == p.context
		}
		return e.PID == old && o.device == p.device && !others[o.Context]
	})
	p.references, p.whole = 0, true
}

func (m *model) endContext(pid uint32, cause Cause, match func(*object) bool) {
	key := fmt.Sprint(pid, " ", cause)
	release := func(o *object) {
		if o.Kind == Imported {
			return
		}
		if m.releases[key] == nil {
			m.releases[key] = &[2]uint64{}
		}
		m.releases[key][0]++
		m.releases[key][1] += o.Size
	}
	mine := func(o *object) bool { return o.PID == pid && o.Space != Physical && match(o) }
	for _, o := range slices.Clone(m.objects) {
		if mine(o) {
			if !o.alias {
				release(o)
			}
			m.end(o)
		}
	}
	for _, o := range m.early {
		if mine(o) {
			release(o)
		}
	}
	m.early = slices.DeleteFunc(m.early, mine)
}
