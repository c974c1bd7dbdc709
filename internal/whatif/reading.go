// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// takeReading begins the traces of a process that have not begun, where the reading is exact.
func (b *books) takeReading(in *ledger.AllocatorReading) {
	for i := range in.Reading.Devices {
		d := &in.Reading.Devices[i]
		if t := b.trace(in.PID, d.Index); t != nil && !t.begun && d.Exact {
			t.begin(in)
		}
	}
}

// begin begins a trace with what the allocator had at a reading.
func (t *recorded) begin(in *ledger.AllocatorReading) {
	t.begun, t.late, t.first = true, true, in.Time
	r := in.Reading
	bases := map[uint64]bool{} // where a segment of cudaMalloc, or a range of addresses, begins
	for i := range r.Segments {
		s := &r.Segments[i]
		if r.Arenas[s.Arena].Device != t.device {
			continue
		}
		if s.Base != 0 {
			bases[s.Base] = true
		} else {
			bases[s.Address] = true
		}
		t.process.ranges.add(s.Address, s.Size)
	}
	end := uint64(0)
	var of *allocsim.Segment
	for i := range r.Blocks {
		b := &r.Blocks[i]
		a := &r.Arenas[b.Arena]
		if a.Device != t.device {
			continue
		}
		if of == nil || b.Address != end || bases[b.Address] {
			t.trace.Start = append(t.trace.Start, allocsim.Segment{
				Address: b.Address, Stream: t.streams.get(a.Stream), Pool: t.pools.byID(a.Pool), Small: a.Small,
			})
			of = &t.trace.Start[len(t.trace.Start)-1]
		}
		end = b.Address + b.Size
		of.Size += b.Size
		of.Expandable = of.Expandable || b.State == caching.Unmapped
		of.Parts = append(of.Parts, t.part(b, of))
		t.process.ranges.own(t, b.Address, b.Size, of.Pool)
	}
	t.early = nil
}

// part returns a part of a segment of the start, with its block.
func (t *recorded) part(b *caching.Block, of *allocsim.Segment) allocsim.Part {
	p := allocsim.Part{Size: b.Size}
	switch b.State {
	case caching.Inactive:
		return p
	case caching.Unmapped:
		p.State = allocsim.PartUnmapped
		return p
	case caching.Active:
		p.State = allocsim.PartLive
	default:
		p.State = allocsim.PartWaiting
	}
	p.Block = t.newBlock(allocsim.Block{Requested: b.Requested, Address: b.Address, Stream: of.Stream, Pool: of.Pool, Site: t.sites.get(t.early[b.Address])})
	if p.State == allocsim.PartLive {
		t.live[b.Address] = p.Block
	} else {
		t.noEnds++ // the kernel half did not see its free
	}
	return p
}
