// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxHeldBlocks bounds walked.blocks, as the ledger bounds the storages of a walk.
const maxHeldBlocks = 1 << 20

// setWalk takes over what a walk found of blocks and driver memory that are newer than the attach.
func (s *space) setWalk(in *ledger.Walk) {
	if in.Failure != "" || len(in.Storages) > maxHeldBlocks {
		return
	}
	w := walked{time: in.Time}
	for i := range in.Holders {
		w.paths = append(w.paths, report.CleanPath(in.Holders[i].Path))
	}
	for _, x := range in.Storages {
		size := x.Block
		if x.Allocation {
			size = x.Bytes
		}
		if size > 0 && int(x.Holder) < len(w.paths) {
			w.blocks = append(w.blocks, heldBlock{x.Address, size, x.Holder})
		}
	}
	slices.SortFunc(w.blocks, func(a, b heldBlock) int { return cmp.Compare(a.address, b.address) })
	s.walked = w
}

// holderOf returns who kept the memory at an address that has been allocated at a time; "" if that
// is unknown.
func (w *walked) holderOf(address, size, allocated uint64) string {
	i, ok := slices.BinarySearchFunc(w.blocks, address, func(x heldBlock, a uint64) int { return cmp.Compare(x.address, a) })
	if !ok || allocated > w.time || w.blocks[i].size != size {
		return ""
	}
	return w.paths[w.blocks[i].holder]
}

// heldFrames writes a block's stack with its holder as the leaf: "[kept by trainer.history[*]]".
func (t *torch) heldFrames(b *block) {
	key := siteKey{b.stack, b.api + "\x00" + b.mark + "\x00" + b.holder}
	t.list(key, func() []callstack.Frame {
		list := []callstack.Frame{{Function: "[kept by " + b.holder + "]", Mark: true}}
		if b.mark != "" {
			return append(list, callstack.Frame{Function: b.mark, Mark: true})
		}
		return append(list, frames.Visible(t.st, b.stack, untrusted.Clean(b.api))...)
	})
}

// olderBlocks divides an allocator's tensors from before the attach, and those that were not
// traced, by holder. The paths are stacks, as in profiles.
func (t *torch) olderBlocks(x *ledger.Tensors) []block {
	return append(t.nameless(x, report.MarkUntraced, x.Untraced), t.nameless(x, report.MarkOlder, x.Older-x.Untraced)...)
}

func (t *torch) nameless(x *ledger.Tensors, mark string, bytes uint64) []block {
	if bytes == 0 {
		return nil
	}
	h := report.Holding{Plane: report.PlaneBefore, Mark: mark, Process: x.Process, Device: x.Device, Live: int64(min(bytes, 1<<62))}
	shares := t.kept.Divide(t.snapshot, &h)
	if shares == nil {
		return []block{{size: bytes, mark: mark}}
	}
	var list []block
	for i := range shares {
		b := block{size: shares[i].Bytes, mark: mark}
		if line := shares[i].Line; line != nil {
			b.holder, b.path = line.Path, line.Frames
		}
		list = append(list, b)
	}
	return list
}

// pathFrames writes the path of a holder as the stack of memory from before the attach.
func (t *torch) pathFrames(b *block) { t.path(b.holder, b.path, b.mark) }
