// SPDX-License-Identifier: Apache-2.0

package heapscan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

const (
	maxPath = 512 // bytes of a path in the books

	// Of one walk.
	mostHolders  = 4096
	mostStorages = 1 << 20
)

// WalkOf returns what the ledger needs of a result for a process that was not traced. What is known
// as blocks of PyTorch's allocator is no memory from the driver, also where no storage was found.
func WalkOf(r *holders.Result, blocks []holders.Range) ledger.Walk {
	walk := bookable(r, nil)
	known := make(map[uint64]bool, len(blocks))
	for _, b := range blocks {
		known[b.Address] = true
	}
	for i := range walk.Storages {
		if s := &walk.Storages[i]; known[s.Address] {
			s.Allocation = false
		}
	}
	return walk
}

// bookable returns what the ledger needs of a result; blocks are those that PyTorch's allocator
// gave out since the attach. The holders of most bytes come first, and those beyond mostHolders are
// left out with their storages.
func bookable(r *holders.Result, blocks []ledger.Block) (walk ledger.Walk) {
	if r == nil {
		return walk
	}
	sizes := make(map[uint64]uint64, len(blocks))
	for _, b := range blocks {
		sizes[b.Address] = b.Size
	}
	lines := r.Lines()
	lines = lines[:min(len(lines), mostHolders)]
	type key struct{ path, device string }
	at := make(map[key]uint32, len(lines))
	for i := range lines {
		at[key{lines[i].Holder, lines[i].Device}] = uint32(i)
		walk.Holders = append(walk.Holders, holderOf(&lines[i]))
	}
	for i := range r.Waste[:min(len(r.Waste), ledger.MaxWaste)] {
		x := &r.Waste[i]
		walk.Waste = append(walk.Waste, ledger.Waste{Kind: string(x.Kind), Path: bounded(x.Holder), Device: int32(x.Index), Bytes: x.Bytes, Storages: x.Storages, Whole: x.Whole})
	}
	for _, text := range r.Problems {
		walk.Problems = append(walk.Problems, untrusted.Clean(text))
	}
	left := 0
	patterns := map[*holders.Holder]string{}
	for i := range r.Storages {
		s := &r.Storages[i]
		path, known := patterns[s.Holder]
		if !known {
			path = s.Holder.Pattern()
			patterns[s.Holder] = path
		}
		n, known := at[key{path, s.DeviceName()}]
		if s.DeviceType == hostDevice {
			continue
		}
		if !known || len(walk.Storages) >= mostStorages {
			left++
			continue
		}
		h := &walk.Holders[n]
		if len(h.Frames) == 0 {
			h.Device, h.Frames = int32(s.Device), framesOf(s.Holder)
		}
		walk.Storages = append(walk.Storages, ledger.Storage{
			Address: s.Address, Bytes: s.Bytes, Block: sizes[s.Address], Holder: n, InMotion: s.InMotion, Allocation: s.Allocation,
		})
	}
	if left > 0 {
		walk.Problems = append(walk.Problems, fmt.Sprintf("storages beyond the limits of a walk, which count as not found: %d", left))
	}
	slices.SortFunc(walk.Storages, func(a, b ledger.Storage) int { return cmp.Compare(a.Address, b.Address) })
	return walk
}

// hostDevice is c10::DeviceType of memory on the host.
const hostDevice = 0

func holderOf(l *holders.Line) ledger.Holder {
	h := ledger.Holder{
		Path: bounded(l.Holder), Class: bounded(l.Class), Container: bounded(l.Container),
		Containers: l.Containers, Entries: l.Entries, Found: l.Found, Retention: l.Retention, Parts: modelpart.Read(l.Parts[:]), Thing: bounded(l.Thing), Many: l.Many,
	}
	for _, path := range l.Also {
		h.Also = append(h.Also, bounded(path))
	}
	return h
}

func framesOf(h *holders.Holder) []string {
	frames := h.Frames()
	frames = frames[:min(len(frames), 64)]
	for i := range frames {
		frames[i] = bounded(frames[i])
	}
	return frames
}

// bounded cleans a text of a traced process and cuts it.
func bounded(text string) string {
	text = untrusted.Clean(text)
	if len(text) <= maxPath {
		return text
	}
	cut := maxPath
	for cut > 0 && text[cut]&0xc0 == 0x80 { // not within a character
		cut--
	}
	return text[:cut] + "…"
}
