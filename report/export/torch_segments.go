// SPDX-License-Identifier: Apache-2.0

package export

import (
	"maps"
	"slices"

	"github.com/vramprof/vramprof/report"
)

// block is a part of a segment.
type block struct {
	size  uint64
	stack uint64
	api   string
	mark  string // instead of a stack
	free  bool

	holder string   // who keeps it; "" if that is unknown
	path   []string // of memory from before the attach: the holder's frames, root first
}

// segments writes the list of segments, by address, and returns how many devices it has.
func (t *torch) segments() (devices int) {
	l := t.p.List()
	put := func(device int32, address uint64, c class, frames func(), blocks func(yield func(block))) {
		l.Item()
		t.segment(device, address, c, frames, blocks)
		devices = max(devices, int(device)+1)
	}
	tiles := tiles{sampled: &t.s.blocks, listed: t.s.listed, walked: &t.s.walked}
	for run := range t.runs() {
		first := &run[0].Value
		frames := func() { t.stack(first.stack, first.api) }
		if first.guessed() {
			frames = func() { t.mark(markSegment) }
		}
		put(t.device(first.id, first.device), run[0].Start, first.class, frames, func(yield func(block)) {
			if t.hosts(first.class, first.stack, first.api) {
				tiles.in(run, t.s.listedAt, yield)
				return
			}
			yield(block{size: run[0].Size(), stack: first.stack, api: first.api, holder: t.s.walked.holderOf(run[0].Start, run[0].Size(), first.time)})
		})
	}
	at := t.s.invented
	for _, x := range t.inventions() {
		var size uint64
		for _, b := range x.blocks {
			size += b.size
		}
		if size = (size + 511) &^ 511; size == 0 || size > inventEnd-at {
			continue
		}
		put(x.device, at, whole, func() { t.blockFrames(&x.blocks[0]) }, func(yield func(block)) {
			for _, b := range x.blocks {
				yield(b)
			}
		})
		at += size
	}
	l.End()
	return devices
}

// runs yields the segments; adjacent mappings of PyTorch are one.
func (t *torch) runs() func(yield func([]extent) bool) {
	return func(yield func([]extent) bool) {
		var run []extent
		for g := range t.s.segments.From(0) {
			if len(run) > 0 {
				if last := &run[len(run)-1]; last.End == g.Start && t.joins(&last.Value, &g.Value) {
					run = append(run, *g)
					continue
				}
				if !yield(run) {
					return
				}
			}
			run = append(run[:0], *g)
		}
		if len(run) > 0 {
			yield(run)
		}
	}
}

func (t *torch) joins(a, b *contents) bool {
	switch {
	case t.device(a.id, a.device) != t.device(b.id, b.device):
		return false
	case a.guessed() || b.guessed():
		return a.guessed() && b.guessed()
	}
	return a.class == mapped && b.class == mapped && t.hosts(mapped, a.stack, a.api) && t.hosts(mapped, b.stack, b.api)
}

// invention is a segment without an address of its own.
type invention struct {
	device int32
	blocks []block
}

// inventions returns physical memory that is not mapped, and memory from before the attach without
// an address.
func (t *torch) inventions() (list []invention) {
	for _, number := range slices.Sorted(maps.Keys(t.s.memories)) {
		if p := t.s.memories[number]; !p.drawn && p.memory.Size > 0 {
			m := &p.memory
			list = append(list, invention{t.device(0, m.Device), []block{{size: m.Size, stack: m.Stack, api: m.API}}})
		}
	}
	if t.process < 0 {
		return list
	}
	known := t.olderFree()
	for i := range t.snapshot.Tensors {
		if x := &t.snapshot.Tensors[i]; x.Process == t.process && x.Device >= 0 && x.Device < maxDevices {
			free := x.OlderCached - min(x.OlderCached, known[x.Device])
			list = append(list, invention{x.Device, append(t.olderBlocks(x), block{size: free, free: true})})
		}
	}
	for _, p := range t.snapshot.Parts() {
		if p.Process != t.process {
			continue
		}
		device := t.device(0, p.Device)
		if p.Unexplained > 0 {
			list = append(list, invention{device, []block{{size: p.Unexplained, mark: report.MarkUnexplained}}})
		}
		if p.Rounding > 0 {
			list = append(list, invention{device, []block{{size: p.Rounding, mark: report.MarkRounding}}})
		}
		list = append(list, invention{device, []block{{size: p.Foreign, mark: report.MarkForeign}}})
	}
	return list
}

// olderFree returns the free bytes of segments from before the attach that have an address, by
// device.
func (t *torch) olderFree() map[int32]uint64 {
	free := make(map[int32]uint64)
	for g := range t.s.segments.From(0) {
		if g.Value.guessed() {
			device := t.device(g.Value.id, g.Value.device)
			free[device] += g.Size()
			for b := range t.s.blocks.Overlap(g.Start, g.End) {
				free[device] -= min(b.End, g.End) - max(b.Start, g.Start)
			}
		}
	}
	for i := range t.listed {
		b := &t.listed[i]
		if g := t.s.segments.At(b.start); g != nil && g.Value.guessed() {
			free[b.device] -= b.size
		}
	}
	return free
}

// segment writes a segment. Its sizes follow its blocks, since it sums them while it writes them.
func (t *torch) segment(device int32, address uint64, c class, frames func(), blocks func(yield func(block))) {
	s := segmentEntry{device: uint64(device), address: address, stream: streamWhole, expandable: c == mapped}
	if c != whole {
		s.stream = streamMapped
	}
	s.write(t.p, frames, func() {
		l := t.p.List()
		blocks(func(b block) {
			if b.size == 0 {
				return
			}
			l.Item()
			t.block(&b, address+s.total)
			s.total += b.size
			if !b.free {
				s.allocated += b.size
			}
		})
		l.End()
		s.active, s.requested, s.small = s.allocated, s.allocated, s.total <= segmentGrain
	})
}

func (t *torch) block(b *block, address uint64) {
	e := blockEntry{address: address, size: b.size, requested: b.size, state: stateActive, holder: b.holder}
	if b.free {
		e.requested, e.state = 0, stateInactive
	}
	e.write(t.p, func() { t.blockFrames(b) })
}

func (t *torch) blockFrames(b *block) {
	switch {
	case b.free:
		t.p.List()
	case len(b.path) > 0:
		t.pathFrames(b)
	case b.holder != "":
		t.heldFrames(b)
	case b.mark != "":
		t.mark(b.mark)
	default:
		t.stack(b.stack, b.api)
	}
}
