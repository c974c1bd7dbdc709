// SPDX-License-Identifier: Apache-2.0

package arenas

import (
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// Addresses of a process with an arena of two regions on a GPU, of 4 and 1 MiB, and a reserved MiB.
const (
	heap    = 0x7f0000000000
	array   = heap + peek.PageSize - 24 // of regions: its first element lies in two pages
	object  = heap + 0x2000
	chunks  = heap + 0x3000
	handles = heap + 0x4000
	gpu     = 0x7e0000000000
	mib     = 1 << 20
)

// arena returns the words of that process.
func arena() map[uint64]uint64 {
	m := map[uint64]uint64{}
	set := func(at uint64, words ...uint64) {
		for i, w := range words {
			m[at+uint64(8*i)] = w
		}
	}
	set(array, gpu, 4*mib, gpu+4*mib, 0, handles, gpu+8*mib, mib, gpu+9*mib, 1, handles+8)
	set(handles, 2, 1)
	// Chunks: size, requested size, number, address, previous, next. The third one is the first
	// region's first.
	set(chunks, 3*mib, mib, none, gpu+mib, 2, none, 7)
	set(chunks+64, mib, mib-100, 12, gpu+8*mib, none, none)
	set(chunks+128, mib, 1000, 10, gpu, none, 0)
	set(object, array, array+80, array+160, chunks, chunks+192, chunks+256, none, 13, 9, 1, 2, 0, 3*mib, 6*mib, 5*mib)
	return m
}

func image(words map[uint64]uint64, mapped ...peek.Region) *peek.Image {
	m := &peek.Image{Mapped: append([]peek.Region{{Start: heap, End: heap + 1<<20, Readable: true, Writable: true, Private: true}}, mapped...), Pages: map[uint64]*peek.Page{}}
	slices.SortFunc(m.Mapped, func(a, b peek.Region) int { return int(int64(a.Start - b.Start)) })
	for number := range uint64(5) {
		m.Pages[heap>>peek.PageShift+number] = new(peek.Page)
	}
	for at, w := range words {
		binary.LittleEndian.PutUint64(m.Pages[at>>peek.PageShift][at%peek.PageSize:], w)
	}
	return m
}

func TestAnArenaCountsOnlyWithAProof(t *testing.T) {
	proven := []purpose.Arena{{Library: "ONNX Runtime", Bytes: 6 * mib, InUse: 3 * mib, Peak: 5 * mib}}
	for _, c := range []struct {
		name    string
		set     map[uint64]uint64
		mapped  []peek.Region
		want    []purpose.Arena
		unclear int
	}{
		{"whole", nil, nil, proven, 0},
		{"memory that the process reserved, but cannot read", nil, []peek.Region{{Start: gpu, End: gpu + 16*mib}}, proven, 0},
		{"memory of the host", nil, []peek.Region{{Start: gpu, End: gpu + 16*mib, Readable: true, Writable: true, Private: true}}, nil, 0},
		{"one region of the host", nil, []peek.Region{{Start: gpu + 8*mib, End: gpu + 9*mib, Readable: true}}, nil, 0},
		{"a gap between chunks", map[uint64]uint64{chunks + 128: mib / 2}, nil, nil, 1},
		{"a chunk beyond its region", map[uint64]uint64{chunks: 5 * mib}, nil, nil, 1},
		{"a chunk whose previous one is another", map[uint64]uint64{chunks + 32: 1}, nil, nil, 1},
		{"a handle of no chunk", map[uint64]uint64{handles: 3}, nil, nil, 1},
		{"a chain that is a circle", map[uint64]uint64{chunks + 40: 2}, nil, nil, 1},
		{"a chunk of no bytes", map[uint64]uint64{chunks: 0}, nil, nil, 1},
		{"other counters", map[uint64]uint64{object + 8*bytesInUse: 3*mib - 256}, nil, nil, 1},
		{"counters that cannot be", map[uint64]uint64{object + 8*bytesInUse: 7 * mib}, nil, nil, 0},
		{"chunks of an odd size", map[uint64]uint64{object + 8*chunksEnd: chunks + 193}, nil, nil, 1},
		{"chunks that are not there", map[uint64]uint64{object + 8*chunksBegin: 1 << 47, object + 8*chunksEnd: 1<<47 + 192}, nil, nil, 1},
		{"more regions than there are", map[uint64]uint64{object + 8*regionsEnd: array + 120}, nil, nil, 0},
		{"no region", map[uint64]uint64{array + 16: 1, array + 56: 1}, nil, nil, 0},
	} {
		words := arena()
		maps.Copy(words, c.set)
		got, unclear, err := find(t.Context(), image(words, c.mapped...))
		if err != nil || !reflect.DeepEqual(got, c.want) || unclear != c.unclear {
			t.Errorf("%s: %+v and %d unclear, %v; want %+v and %d", c.name, got, unclear, err, c.want, c.unclear)
		}
	}
}

// FuzzMemory: whatever the memory has, the search ends, and no arena has more in use than it has.
func FuzzMemory(f *testing.F) {
	f.Add(uint64(object+8*bytesTotal), uint64(1)<<63, uint64(chunks), uint64(none))
	f.Add(uint64(array+8), uint64(mib), uint64(handles+8), uint64(0))
	f.Fuzz(func(t *testing.T, at1, word1, at2, word2 uint64) {
		words := arena()
		for at, w := range map[uint64]uint64{at1: word1, at2: word2} {
			words[heap+at%(5*peek.PageSize)&^7] = w
		}
		list, _, err := find(t.Context(), image(words))
		for _, a := range list {
			if err != nil || a.InUse > a.Bytes {
				t.Errorf("%+v, %v", a, err)
			}
		}
	})
}
