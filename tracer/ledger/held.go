// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// HeldGrowth is how much more a holder keeps than at an earlier walk.
type HeldGrowth struct {
	Index           int // of the holder in the later list
	Bytes, Storages int64
	Entries         int64 // of its containers; 0 if their number is unknown at either walk
}

// Grown compares what two walks of a process found, by path and device, and returns the holders
// that have more bytes at the later one, the fastest first. What Python does not hold is among
// them.
func Grown(before, after []Held) []HeldGrowth {
	type key struct {
		path   string
		device int32
	}
	old := make(map[key]*Held, len(before))
	for i := range before {
		h := &before[i]
		old[key{h.Path, h.Device}] = h
	}
	var list []HeldGrowth
	for i := range after {
		h, was := &after[i], &Held{}
		if o := old[key{h.Path, h.Device}]; o != nil {
			was = o
		}
		g := HeldGrowth{Index: i, Bytes: int64(h.Bytes) - int64(was.Bytes), Storages: int64(h.Storages) - int64(was.Storages)}
		if h.Entries >= 0 && was.Entries >= 0 {
			g.Entries = int64(h.Entries) - int64(was.Entries)
		}
		if g.Bytes > 0 {
			list = append(list, g)
		}
	}
	slices.SortStableFunc(list, func(a, b HeldGrowth) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}

// Unheld returns what PyTorch's allocators had given out at a walk without a storage that the walk
// found, by device, and how much of it is older than the attach.
func (w *Walked) Unheld() []Held {
	var list []Held
	for i := range w.Allocators {
		t := &w.Allocators[i]
		if n := minus(t.Allocated, t.Held); n > 0 {
			list = append(list, Held{Holder: Holder{Device: t.Device, Entries: -1}, Bytes: n, Older: min(minus(t.Older, t.HeldOlder), n)})
		}
	}
	return list
}

// Divide returns how much each holder keeps of memory that has total bytes now and had whole bytes
// when the parts were found. The parts never get more than they had; what they leave has no known
// holder.
func Divide(parts []SiteHolder, whole, total uint64) []SiteHolder {
	weights := make([]uint64, 1, len(parts)+1)
	rest := whole
	for _, p := range parts {
		n := min(p.Bytes, rest)
		rest -= n
		weights = append(weights, n)
	}
	weights[0] = rest
	if total < whole {
		weights, _ = apportion(total, weights)
	}
	var list []SiteHolder
	for i, p := range parts {
		if n := weights[i+1]; n > 0 {
			list = append(list, SiteHolder{p.Holder, n})
		}
	}
	return list
}
