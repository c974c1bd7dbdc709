// SPDX-License-Identifier: Apache-2.0

package allocscan

import (
	"cmp"
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

// reading is what one look at a process found.
type reading struct {
	*allocator.Snapshot
	given   []ledger.Block // that reports gave out: those live just before and after, or, if it is settled, then
	settled bool           // by the reports meanwhile
	at      uint64         // events up to then are in it
}

// ReadingOf returns what the ledger takes of a snapshot of a process that was not traced: all is
// older.
func ReadingOf(s *allocator.Snapshot) *caching.Reading { return readingOf(s, nil, nil).bookable() }

// readingOf returns a walk that no report settled.
func readingOf(s *allocator.Snapshot, before, after []Table) *reading {
	r := &reading{Snapshot: s, at: clock.Now()}
	for i := range s.Devices {
		r.at = min(r.at, s.Devices[i].From)
	}
	for _, list := range [...][]Table{before, after} {
		for i := range list {
			r.given = append(r.given, list[i].Blocks...)
		}
	}
	return r
}

// settledReading returns a walk that was settled with tables.
func settledReading(s *allocator.Snapshot, tables []Table, at uint64) *reading {
	r := readingOf(s, nil, tables)
	r.settled, r.at = true, at
	return r
}

// bookable returns what the ledger takes of a reading. Beyond the limits of package caching, or
// where they overlap, blocks and segments are left out, and no device is exact.
func (s *reading) bookable() *caching.Reading {
	since := make(map[uint64]*ledger.Block, len(s.given))
	for i := range s.given {
		since[s.given[i].Address] = &s.given[i]
	}
	r := &caching.Reading{Blocks: make([]caching.Block, 0, min(len(s.Blocks), caching.MaxBlocks))}
	arenas := map[caching.Arena]uint16{}
	whole := true
	arenaOf := func(a caching.Arena) (n uint16, ok bool) {
		if n, ok = arenas[a]; !ok && len(r.Arenas) < caching.MaxArenas {
			n, ok = uint16(len(r.Arenas)), true
			arenas[a] = n
			r.Arenas = append(r.Arenas, a)
		}
		return n, ok
	}
	for i := range s.Segments {
		g := &s.Segments[i]
		arena, ok := arenaOf(caching.Arena{Device: int32(g.Device), Pool: caching.PoolID(g.Pool), Stream: g.Stream, Small: g.Small})
		if ok = ok && len(r.Segments) < caching.MaxSegments; !ok {
			whole = false
		} else {
			r.Segments = append(r.Segments, caching.Segment{Address: g.Address, Size: g.Size, Base: g.Base, Arena: arena})
		}
	}
	slices.SortFunc(r.Segments, func(a, b caching.Segment) int { return cmp.Compare(a.Address, b.Address) })
	end := uint64(0)
	r.Segments = slices.DeleteFunc(r.Segments, func(s caching.Segment) bool { return !follows(s.Address, s.Size, &end, &whole) })
	end = 0
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if !follows(b.Address, b.Size, &end, &whole) {
			continue
		}
		arena, ok := arenaOf(caching.Arena{Device: int32(b.Device), Pool: caching.PoolID(b.Pool), Stream: b.Stream, Small: b.Small})
		if ok = ok && len(r.Blocks) < caching.MaxBlocks; !ok {
			whole = false
		} else {
			given := since[b.Address]
			r.Blocks = append(r.Blocks, caching.Block{
				Address: b.Address, Size: b.Size, Requested: b.Requested, Arena: arena, State: caching.State(b.State),
				Older:   b.State == allocator.Active && given == nil,
				Sampled: b.State == allocator.Active && given != nil && given.Sampled && given.Size == b.Size,
			})
		}
	}
	for i := range s.Devices {
		d := deviceOf(&s.Devices[i], whole)
		if s.settled && whole && !d.Exact {
			d.Settled, d.OffBlocks, d.OffBytes = true, 0, 0
		}
		r.Devices = append(r.Devices, d)
	}
	return r
}

// follows reports whether a range begins at the end of the range before or later, as all do that
// were not read in motion; otherwise the reading is not whole.
func follows(address, size uint64, end *uint64, whole *bool) bool {
	if address < *end || size > caching.MaxSize || address > caching.MaxAddress {
		*whole = false
		return false
	}
	*end = address + size
	return true
}

func deviceOf(d *allocator.Device, whole bool) caching.Device {
	k := &d.Counters
	return caching.Device{
		Index: int32(min(d.Index, math.MaxInt32)), Exact: d.Exact && whole, OffBlocks: d.OffBlocks, OffBytes: d.OffBytes,
		Counters: caching.Counters{
			Allocated: caching.Stat(k.Allocated), Reserved: caching.Stat(k.Reserved), Requested: caching.Stat(k.Requested), Allocations: caching.Stat(k.Allocations),
			Retries: k.Retries, OutOfMemory: k.OutOfMemory,
		},
	}
}
