// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const fuzzBase = 0x10000000

// flatMemory is memory of one region, that belongs to the library.
type flatMemory []byte

func (m flatMemory) Regions() []peek.Region {
	return []peek.Region{{Start: fuzzBase, End: fuzzBase + uint64(len(m)), Path: "/libc10_cuda.so", Readable: true, Writable: true, Private: true}}
}

func (m flatMemory) ReadAt(b []byte, a uint64) (int, error) {
	if a < fuzzBase || a >= fuzzBase+uint64(len(m)) {
		return 0, errors.New("not mapped")
	}
	n := copy(b, m[a-fuzzBase:])
	if n < len(b) {
		return n, errors.New("short")
	}
	return n, nil
}

// minimal is the memory of one device with a divided segment, an empty set in each other pool, and
// cycles where data makes them.
func minimal() flatMemory {
	m := make(flatMemory, 16<<10)
	put := func(at int, words ...uint64) {
		for i, w := range words {
			binary.LittleEndian.PutUint64(m[at+8*i:], w)
		}
	}
	at := func(o int) uint64 { return fuzzBase + uint64(o) }
	const device, table, node, a, b = 4096, 10240, 10752, 12288, 12544
	put(8, at(64), at(72), at(72)) // the list of devices
	put(64, at(device))
	for i, o := range []int{1024, 1072, 1144, 1192} {
		put(device+o, 0, 0, at(device+o), at(device+o), 0)
		if i == 0 {
			put(device+o, 0, at(node), at(node), at(node), 1)
			put(node, 1, at(device+o), 0, 0, at(b))
		}
	}
	put(device+1256, at(table), 3, 4<<8, 1) // active: lookups are the second byte
	for i := range 7 {
		m[table+16*i] = 0xff
	}
	m[table] = 0
	put(table+8, at(a))
	pool := at(device + 1024 - 8)
	put(a, 0, 0, 0, 0, 0, 0, 1024, 1000, pool, 0x7f0000000000, 1, 0, at(b))
	put(b, 0, 0, 0, 0, 0, 0, 512, 0, pool, 0x7f0000000400, 0, at(a), 0)
	for i, n := range []uint64{1, 1, 1, 1, 1024, 1536, 1024, 512, 1000} {
		put(device+40+96*i, n, n, n, 0, n, n, n, 0, 0, 0, 0, 0)
	}
	return m
}

func TestOneDividedSegmentIsEnough(t *testing.T) {
	s, _, err := readOnce(minimal(), nil)
	if err != nil || len(s.Blocks) != 2 || !s.Exact() || len(s.Segments) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte{0, 8, 1})
	f.Fuzz(func(t *testing.T, changes []byte) {
		m := minimal()
		_, layout, _ := readOnce(m, nil)
		for ; len(changes) >= 3; changes = changes[3:] {
			m[int(binary.LittleEndian.Uint16(changes))%len(m)] = changes[2]
		}
		for _, l := range []*Layout{nil, layout} {
			const limit = 1 << 20
			s, err := newAllocator(m, l, limit).Walk(2)
			if err == nil && (len(s.Blocks) > maxBlocks || s.Cost.Bytes > limit) {
				t.Errorf("%d blocks, %+v", len(s.Blocks), s.Cost)
			}
		}
	})
}
