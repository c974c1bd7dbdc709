// SPDX-License-Identifier: Apache-2.0

package heapscan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
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
	allocations := map[uint64]*ledger.Storage{}
	for i := range walk.Storages {
		if s := &walk.Storages[i]; s.Allocation {
			allocations[s.Address] = s
		}
	}
	if len(allocations) == 0 {
		return walk
	}
	for _, b := range blocks {
		if s := allocations[b.Address]; s != nil {
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
	walk.Saved = savedOf(r)
	left := 0
	type same struct { // storages of one holder and device are of one line
		holder       *holders.Holder
		kind, device int
	}
	const none = ^uint32(0)
	of := map[same]uint32{}
	walk.Storages = make([]ledger.Storage, 0, min(len(r.Storages), mostStorages))
	for i := range r.Storages {
		s := &r.Storages[i]
		if s.DeviceType == hostDevice {
			continue
		}
		one := same{s.Holder, s.DeviceType, s.Device}
		n, known := of[one]
		if !known {
			if n, known = at[key{s.Holder.Pattern(), s.DeviceName()}]; !known {
				n = none
			}
			of[one] = n
		}
		if n == none || len(walk.Storages) >= mostStorages {
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

// savedOf sums what the autograd graph has saved by module, the most bytes first.
func savedOf(r *holders.Result) (list []ledger.Saved) {
	type key struct {
		module string
		device int
	}
	at := map[key]int{}
	for i := range r.Storages {
		s := &r.Storages[i]
		if s.Module.Name == "" || s.Part != modelpart.Saved || s.DeviceType == hostDevice || s.Allocation {
			continue
		}
		k := key{blockOf(s.Module.Name), s.Device}
		n, known := at[k]
		if !known {
			n = len(list)
			at[k] = n
			list = append(list, ledger.Saved{Device: int32(s.Device), Module: bounded(k.module)})
		}
		bytes := holders.BlockBytes(s.Bytes)
		list[n].Bytes += bytes
		if s.Module.Sure {
			list[n].Sure += bytes
		}
	}
	slices.SortFunc(list, func(a, b ledger.Saved) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Module, b.Module), cmp.Compare(a.Device, b.Device))
	})
	return list[:min(len(list), ledger.MaxSaved)]
}

// blockOf returns the part of a module's name up to its first number, "model.blocks.3" of
// "model.blocks.3.mlp.0": models repeat blocks, and people know them by their number.
func blockOf(name string) string {
	end := 0
	for part := range strings.SplitSeq(name, ".") {
		end += len(part)
		if _, err := strconv.ParseUint(part, 10, 64); err == nil {
			return name[:end]
		}
		end++
	}
	return name
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

// errNoTime is the cause that ends a walk when all of them have taken their time.
var errNoTime = errors.New("there was no time to read its memory")

// failures are the codes for errors of walks, the first that fits.
var failures = []struct {
	err  error
	code string
}{
	{peek.ErrNoPython, ledger.WalkNoPython},
	{holders.ErrNoTensors, ledger.WalkNoTensors},
	{context.Canceled, ledger.WalkCanceled},
	{context.DeadlineExceeded, ledger.WalkNoTime},
	{errNoTime, ledger.WalkNoTime},
}

// failureOf returns the code of an error, or its text: "cannot read this Python 3.13.5: it is a
// free-threaded build".
func failureOf(err error) string {
	for _, known := range failures {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	if walk := (*holders.WalkError)(nil); errors.As(err, &walk) {
		err = walk.Err
	}
	return untrusted.Clean(err.Error())
}
