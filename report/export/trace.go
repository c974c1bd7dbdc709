// SPDX-License-Identifier: Apache-2.0

package export

import "iter"

// action is what an entry of the trace does. It must describe the change exactly: the viewer begins
// with the memory at the end, and undoes entry after entry.
type action uint8

const (
	tensorAlloc action = iota + 1
	tensorFree
	segmentAlloc
	segmentFree
	segmentMap
	segmentUnmap
	outOfMemory // address is the number of bytes that the GPU had free
)

type entry struct {
	time, address, size, stack uint64
	api                        string
	id                         uint32 // of the segment
	device                     int32
	action                     action
	older                      bool // it is of a segment from before the attach
}

// trace keeps the newest entries.
type trace struct {
	entries []entry
	oldest  int // index of the oldest entry, once entries is full
	max     int
	dropped uint64
}

func (t *trace) push(a action, x *extent, time uint64) {
	e := entry{
		time: time, address: x.Start, size: x.Size(), stack: x.Value.stack, api: x.Value.api, id: x.Value.id, device: x.Value.device, action: a,
		older: x.Value.guessed(),
	}
	if len(t.entries) < t.max {
		t.entries = append(t.entries, e)
		return
	}
	t.entries[t.oldest] = e
	t.oldest = (t.oldest + 1) % t.max
	t.dropped++
}

// at returns entry i; 0 is the oldest.
func (t *trace) at(i int) *entry { return &t.entries[(t.oldest+i)%len(t.entries)] }

// all yields the entries, oldest first.
func (t *trace) all() iter.Seq2[int, *entry] {
	return func(yield func(int, *entry) bool) {
		for i := range t.entries {
			if !yield(i, t.at(i)) {
				return
			}
		}
	}
}
