// SPDX-License-Identifier: Apache-2.0

package allocsim

import "fmt"

// observer sees each operation after it was done, and the piece of its block, or none. It can end a
// replay with an error.
type observer func(a *allocator, op int, piece int32) error

type replay struct {
	*allocator
	trace     *Trace
	pieces    []int32 // by block: its piece, or notYet, or gone
	steps     int
	requested uint64
	peakSeen  uint64
	result    Result
	observer  observer
}

const (
	notYet = int32(-1)
	gone   = int32(-2)
)

// start books what the allocator had before the trace.
func (r *replay) start() error {
	r.pieces = make([]int32, len(r.trace.Blocks))
	for i := range r.pieces {
		r.pieces[i] = notYet
	}
	for i := range r.trace.Start {
		if err := r.startSegment(&r.trace.Start[i]); err != nil {
			return fmt.Errorf("segment %d at the start: %w", i, err)
		}
		if r.work < 0 {
			return errTooMuchWork
		}
	}
	r.peakSeen = r.peak
	r.result.PeakAllocated, r.result.PeakRequested = r.allocated, r.requested
	r.result.AtPeak = Cache{Whole: r.wholeFree, Stuck: r.freeBytes - r.wholeFree}
	return nil
}

func (r *replay) startSegment(s *Segment) error {
	granule := uint64(0)
	if s.Expandable {
		if granule = largeBuffer; s.Small {
			granule = smallBuffer
		}
	}
	sum, mapped := uint64(0), uint64(0)
	for _, p := range s.Parts {
		if p.Size == 0 || p.Size > 2*maxSize || p.State > PartUnmapped {
			return fmt.Errorf("a part of %d bytes, state %d", p.Size, p.State)
		}
		if p.State != PartUnmapped {
			mapped += p.Size
		} else if granule == 0 || sum%granule != 0 || p.Size%granule != 0 {
			return fmt.Errorf("address space of %d bytes at %d", p.Size, sum)
		}
		if sum += p.Size; sum > 2*maxSize {
			break
		}
	}
	if sum != s.Size || sum == 0 || sum > 2*maxSize {
		return fmt.Errorf("its parts have %d of %d bytes", sum, s.Size)
	}
	if mapped > maxReserved-min(r.reserved, maxReserved) {
		return fmt.Errorf("more than %d bytes", maxReserved)
	}
	r.reserve(mapped)
	at := r.list(s.Pool, s.Stream, s.Small)
	return r.startParts(s, r.addSegment(s.Address, s.Size, granule, at))
}

func (r *replay) startParts(s *Segment, rest int32) error {
	r.nodes[rest].state = live // so that no part merges with what is not booked yet
	for i, p := range s.Parts {
		b := rest
		if i+1 < len(s.Parts) {
			b = r.splitLeft(rest, p.Size)
		}
		switch p.State {
		case PartFree:
			r.settle(b)
			continue
		case PartUnmapped:
			r.nodes[b].state = unmapped
			r.merge(b, r.nodes[b].prev)
			r.putUnmapped(b)
			continue
		}
		if int64(p.Block) >= int64(len(r.pieces)) || r.pieces[p.Block] != notYet {
			return fmt.Errorf("block %d is not there, or twice", p.Block)
		}
		r.own(b, p.Block)
		if p.State == PartWaiting {
			r.requested -= r.trace.Blocks[p.Block].Requested
			r.wait(b)
		} else {
			r.allocated += p.Size
		}
	}
	return nil
}

func (r *replay) own(b int32, n uint32) {
	r.pieces[n], r.nodes[b].owner = b, n+1
	r.requested += r.trace.Blocks[n].Requested
}
