// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// errorDeinitialized: a free that fails with it came while the driver shut down, and the memory is gone all the same.
const errorDeinitialized = 4

const errorOutOfMemory = 2

func (s *space) free(e *ledger.Event) {
	if e.Space != ledger.Blocks && e.Address != 0 {
		s.remember(e, undo{}) // nothing, unless it is found below
	}
	switch e.Space {
	case ledger.Blocks:
		if b := s.blocks.at(e.Address); b != nil && b.start == e.Address {
			x := *b
			s.blocks.cut(x.start, x.end())
			s.trace.push(tensorFree, &x, e.Time)
		}
	case ledger.Physical:
		s.release(e)
	case ledger.Addresses:
		s.freeSegment(e)
	case ledger.Arrays, ledger.Mipmaps, ledger.Externals:
		s.freeArray(arrayKey{e.Space, e.Address}, e)
	}
}

func (s *space) freeSegment(e *ledger.Event) {
	g := s.segments.at(e.Address)
	if g == nil {
		return
	}
	if x := *g; x.class == whole && x.start == e.Address && x.start < addressEnd {
		s.segments.cut(x.start, x.end())
		s.endSegment(&x, e.Time)
		s.remember(e, undo{list: []extent{x}})
		return
	}
	if g.guessed() {
		s.freeOlder(e.Address, e.Time)
	}
}

// freeOlder ends a segment from before the attach that is freed by its address. How long it is nobody tells: as far as what is known of
// it has no tensor.
func (s *space) freeOlder(address, time uint64) {
	end := address
	for g := range s.segments.from(address) {
		if !g.guessed() || g.start > end {
			break
		}
		end = g.end()
	}
	for b := range s.blocks.from(address) {
		end = min(end, b.start)
		break
	}
	if address >= end {
		return
	}
	for _, x := range s.segments.cut(address, end) {
		switch {
		case x.class == found: // it ends whole or not at all
			if x.start < address || x.end() > end {
				s.segments.insert(x)
				continue
			}
		default:
			for _, part := range [][2]uint64{{x.start, address}, {end, x.end()}} {
				if part[0] < part[1] {
					y := x
					y.start, y.size = part[0], part[1]-part[0]
					s.segments.insert(y)
				}
			}
			from, to := max(x.start, address), min(x.end(), end)
			x.start, x.size = from, to-from
		}
		s.endSegment(&x, time)
	}
}

func (s *space) freeArray(key arrayKey, e *ledger.Event) {
	address, ok := s.arrays[key]
	if !ok {
		return
	}
	delete(s.arrays, key)
	list := s.segments.cut(address, address+1)
	for i := range list {
		s.endSegment(&list[i], e.Time)
	}
	s.remember(e, undo{list: list, array: key})
}

// undo is what the last free of a thread ended.
type undo struct {
	address  uint64 // or handle, as the event has it
	list     []extent
	array    arrayKey
	physical []*physical // of what is mapped in list; alone: a reference of it was released
}

func (s *space) remember(e *ledger.Event, u undo) {
	if len(s.undo) >= maxUndo {
		clear(s.undo)
	}
	u.address = e.Address
	s.undo[e.TID] = u
}

// freeFailed gives back what the thread's last free ended, where nothing has come in the meantime.
func (s *space) freeFailed(e *ledger.Event) {
	u, ok := s.undo[e.TID]
	if !ok || e.Address != 0 && e.Address != u.address {
		return
	}
	delete(s.undo, e.TID)
	if e.Result == errorDeinitialized {
		return
	}
	if len(u.list) == 0 {
		s.undoRelease(u)
	}
	for i, x := range u.list {
		end := uint64(addressEnd)
		if u.array != (arrayKey{}) {
			if _, again := s.arrays[u.array]; again {
				return
			}
			end = inventEnd
		}
		if s.taken(&x) || !s.fits(&x, end) {
			continue
		}
		if x.class == mapped {
			m := u.physical[i]
			if m.mapped {
				continue
			}
			m.mapped, s.memories[m.id] = true, m
		}
		if u.array != (arrayKey{}) {
			s.arrays[u.array] = x.start
		}
		s.segments.insert(x)
		s.trace.push(beginOf(x.class), &x, e.Time)
	}
}

func (s *space) taken(x *extent) bool {
	for g := range s.segments.from(x.start) {
		return g.start < x.end()
	}
	return false
}

// isOutOfMemory says whether a failed allocation lacked memory of a GPU.
func (s *space) isOutOfMemory(e *ledger.Event) bool {
	return e.Result == errorOutOfMemory && (e.Kind.Owned() || e.Kind == ledger.Tensor && e.Device != ledger.CPUDevice)
}

func (s *space) outOfMemory(e *ledger.Event, free uint64) {
	size := e.Size
	if size > maxSize {
		size = 0
	}
	s.trace.push(outOfMemory, &extent{start: min(free, inventEnd), size: size, stack: e.Stack, api: e.API, device: deviceOf(e.Device)}, e.Time)
}

func sortBlocks(list []ledger.Block) {
	slices.SortFunc(list, func(a, b ledger.Block) int {
		return cmp.Or(cmp.Compare(a.Address, b.Address), cmp.Compare(a.Size, b.Size))
	})
}
