// SPDX-License-Identifier: Apache-2.0

package caching

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

const mib = 1 << 20

// arenas of the tests: large and small blocks of the default stream, large ones of another stream,
// of a private pool, and of another device.
var arenas = []Arena{{}, {Small: true}, {Stream: 7}, {Pool: PoolID{3, 0}}, {Device: 1}}

// lay returns a segment with blocks one after the other, each a state and a size, and adds them to
// a reading.
func (r *Reading) lay(arena uint16, base uint64, blocks ...any) {
	at := uint64(0x7f0000000000) + uint64(len(r.Segments))<<32
	s := Segment{Address: at, Arena: arena}
	if base != 0 {
		s.Base = at - (base - 1)
	}
	for i := 0; i < len(blocks); i += 2 {
		size := uint64(blocks[i+1].(int))
		r.Blocks = append(r.Blocks, Block{Address: at, Size: size, Requested: size, Arena: arena, State: blocks[i].(State)})
		at += size
		s.Size += size
	}
	r.Segments = append(r.Segments, s)
}

func TestACacheIsDividedByWhatKeepsIt(t *testing.T) {
	for _, c := range []struct {
		name string
		lay  func(r *Reading)
		want Cache // without Arenas
	}{
		{"a segment without a live block goes back", func(r *Reading) { r.lay(0, 0, Inactive, 20*mib) },
			Cache{Reserved: 20 * mib, Cached: 20 * mib, Idle: 20 * mib, LargestFree: 20 * mib}},
		{"of another stream too", func(r *Reading) { r.lay(2, 0, Inactive, 20*mib) },
			Cache{Reserved: 20 * mib, Cached: 20 * mib, Idle: 20 * mib, LargestFree: 20 * mib}},
		{"a live block holds the rest of its segment", func(r *Reading) { r.lay(0, 0, Inactive, 8*mib, Active, 2*mib, Inactive, 10*mib) },
			Cache{Reserved: 20 * mib, Allocated: 2 * mib, Requested: 2 * mib, Cached: 18 * mib, Held: 18 * mib, LargestFree: 10 * mib}},
		{"a rest of 1 MiB beside large blocks fits no request", func(r *Reading) { r.lay(0, 0, Active, 19*mib, Inactive, mib) },
			Cache{Reserved: 20 * mib, Allocated: 19 * mib, Requested: 19 * mib, Cached: mib, Small: mib, LargestFree: mib}},
		{"beside small blocks it does", func(r *Reading) { r.lay(1, 0, Active, mib, Inactive, mib) },
			Cache{Reserved: 2 * mib, Allocated: mib, Requested: mib, Cached: mib, Held: mib, LargestFree: mib}},
		{"free memory of a stream is for that stream", func(r *Reading) {
			r.lay(0, 0, Active, 4*mib)
			r.lay(2, 0, Active, 2*mib, Inactive, 18*mib)
		}, Cache{Reserved: 24 * mib, Allocated: 6 * mib, Requested: 6 * mib, Cached: 18 * mib, Streams: 18 * mib, LargestFree: 18 * mib}},
		{"the stream with most bytes is the main one", func(r *Reading) {
			r.lay(0, 0, Active, mib, Inactive, 3*mib)
			r.lay(2, 0, Active, 2*mib, Inactive, 18*mib)
		}, Cache{Reserved: 24 * mib, Allocated: 3 * mib, Requested: 3 * mib, Cached: 21 * mib, Streams: 3 * mib, Held: 18 * mib, Main: 7, LargestFree: 18 * mib}},
		{"a private pool keeps what is free in it", func(r *Reading) { r.lay(3, 0, Inactive, 20*mib); r.lay(3, 0, Active, mib, Inactive, mib) },
			Cache{Reserved: 22 * mib, Allocated: mib, Requested: mib, Cached: 21 * mib, Private: 21 * mib, LargestFree: 20 * mib}},
		{"a block waits for the streams that use it", func(r *Reading) { r.lay(0, 0, PendingFree, 4*mib) },
			Cache{Reserved: 4 * mib, Cached: 4 * mib, Pending: 4 * mib}},
		{"whole pages of an expandable segment go back", func(r *Reading) { r.lay(0, 1, Active, 2*mib, Inactive, 46*mib, Active, 12*mib) },
			Cache{Reserved: 60 * mib, Allocated: 14 * mib, Requested: 14 * mib, Cached: 46 * mib, Idle: 20 * mib, Held: 26 * mib, LargestFree: 46 * mib}},
		{"pages count from where the segment begins", func(r *Reading) { r.lay(0, 1+10*mib, Inactive, 20*mib) },
			Cache{Reserved: 20 * mib, Cached: 20 * mib, Held: 20 * mib, LargestFree: 20 * mib}},
		{"other devices are apart", func(r *Reading) { r.lay(4, 0, Active, 20*mib) }, Cache{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Reading{Devices: []Device{{}, {Index: 1}}, Arenas: arenas}
			c.lay(r)
			got := r.Divide()[0]
			got.Arenas = nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

// random returns a reading with all kinds of segments and blocks.
func random(rng *rand.Rand) *Reading {
	r := &Reading{Arenas: arenas}
	for device := range int32(2) {
		r.Devices = append(r.Devices, Device{Index: device, Exact: rng.IntN(2) == 0, OffBytes: rng.Uint64N(9), Counters: Counters{Retries: 2, Allocated: Stat{Peak: rng.Uint64N(1 << 40)}}})
	}
	for range rng.IntN(60) {
		var blocks []any
		for range 1 + rng.IntN(9) {
			blocks = append(blocks, State(rng.IntN(3)), 512*(1+rng.IntN(1<<uint(rng.IntN(16)))))
		}
		r.lay(uint16(rng.IntN(len(arenas))), uint64(rng.IntN(2)*(1+rng.IntN(5)*mib)), blocks...)
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.Requested -= rng.Uint64N(min(b.Size, 512))
		b.Older = b.State == Active && rng.IntN(2) == 0
	}
	return r
}

func TestThePartsOfACacheAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		r := random(rng)
		for device, c := range r.Divide() {
			var reserved, allocated, older, arenaReserved, arenaAllocated, arenaOlder, free uint64
			for _, s := range r.Segments {
				if r.Arenas[s.Arena].Device == int32(device) {
					reserved += s.Size
				}
			}
			for _, b := range r.Blocks {
				if r.Arenas[b.Arena].Device == int32(device) && b.State == Active {
					allocated += b.Size
					if b.Older {
						older += b.Size
					}
				}
			}
			for _, a := range c.Arenas {
				arenaReserved, arenaAllocated, arenaOlder, free = arenaReserved+a.Reserved, arenaAllocated+a.Allocated, arenaOlder+a.Older, free+a.Free
			}
			if c.Reserved != reserved || c.Allocated != allocated || c.Reserved != c.Allocated+c.Cached || arenaReserved != reserved || arenaAllocated != allocated ||
				c.Cached != c.Idle+c.Pending+c.Private+c.Streams+c.Small+c.Held || free+c.Pending != c.Cached || older != arenaOlder || c.Requested > allocated {
				t.Fatalf("of %d reserved, %d allocated and %d older: %+v", reserved, allocated, older, c)
			}
		}
	}
}

// carried returns the parts that a reading is written in.
func carried(r *Reading) (parts [][]byte) {
	for next, first := 0, true; first || !r.Done(next); first = false {
		c := codec.NewWriter()
		r.Carry(c, &next)
		parts = append(parts, c.Data)
	}
	return parts
}

func read(parts [][]byte) (*Reading, bool) {
	r, next := &Reading{}, 0
	for _, data := range parts {
		c := codec.NewReader(data, nil, nil, func(int) {})
		if r.Carry(c, &next); c.Bad {
			return nil, false
		}
	}
	return r, true
}

func TestAReadingComesBackAsItWasWritten(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 50 {
		r := random(rng)
		if i == 0 { // more than a part
			for range 100_000 {
				r.Blocks = append(r.Blocks, Block{Address: r.Blocks[len(r.Blocks)-1].Address + 1<<20, Size: 1 << 19, Requested: 400_001})
			}
		}
		parts := carried(r)
		if i == 0 && len(parts) < 2 {
			t.Errorf("%d blocks are one part", len(r.Blocks))
		}
		if got, ok := read(parts); !ok || !reflect.DeepEqual(got, r) {
			t.Fatalf("%d segments and %d blocks came back as %+v", len(r.Segments), len(r.Blocks), got)
		}
	}
}

func TestRangesThatOverlapAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(r *Reading){
		"blocks":               func(r *Reading) { r.Blocks[1].Address-- },
		"segments":             func(r *Reading) { r.Segments[1].Address = r.Segments[0].Address + 1 },
		"beyond the addresses": func(r *Reading) { r.Segments[1].Address = 1 << 60 },
		"too large":            func(r *Reading) { r.Blocks[1].Size = 1 << 50 },
	} {
		r := &Reading{Devices: []Device{{}}, Arenas: arenas}
		r.lay(0, 0, Active, mib, Inactive, mib)
		r.lay(0, 0, Active, mib)
		spoil(r)
		if _, ok := read(carried(r)); ok {
			t.Errorf("%s: the reading is taken", name)
		}
	}
}

func FuzzCarry(f *testing.F) {
	f.Add(carried(random(rand.New(rand.NewPCG(5, 6))))[0])
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, ok := read([][]byte{data}); ok {
			for _, c := range r.Divide() {
				if c.Reserved < c.Allocated && c.Cached > c.Reserved {
					t.Errorf("%+v", c)
				}
			}
		}
	})
}

func TestLookupsInAReading(t *testing.T) {
	r := Reading{
		Devices:  []Device{{Index: 1}, {Index: 3}},
		Segments: []Segment{{Address: 0x1000, Size: 0x1000}, {Address: 0x4000, Size: 0x1000}},
		Blocks:   []Block{{Address: 0x1000, Size: 0x200}, {Address: 0x1200, Size: 0xe00}, {Address: 0x4000, Size: 0x1000}},
	}
	if r.On(3) != &r.Devices[1] || r.On(2) != nil {
		t.Error("devices")
	}
	if r.BlockAt(0x1200) != &r.Blocks[1] || r.BlockAt(0x1300) != nil || r.BlockAt(0x5000) != nil {
		t.Error("blocks")
	}
	if r.SegmentAt(0x4000) != &r.Segments[1] || r.SegmentAt(0x1200) != nil {
		t.Error("segments")
	}
	for _, c := range []struct {
		start, end uint64
		want       bool
	}{{0, 0x1000, false}, {0, 0x1001, true}, {0x1fff, 0x2000, true}, {0x2000, 0x4000, false}, {0x3000, 0x6000, true}, {0x5000, 0x6000, false}} {
		if got := r.Overlaps(c.start, c.end); got != c.want {
			t.Errorf("%#x to %#x: %v", c.start, c.end, got)
		}
	}
}
