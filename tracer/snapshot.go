// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"time"

	"github.com/vramprof/vramprof/symbolize"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Snapshot takes a copy of the books, after Run or during it. It names the
// stacks of all sites, so that the warnings say which files have no or incomplete names.
func (t *Tracer) Snapshot() *ledger.Snapshot {
	t.mu.Lock()
	owners := t.blockOwners()
	t.mu.Unlock()
	blocks := t.blocksOf(owners) // which takes long if there are millions
	s := t.takeBooks(blocks)
	for i := range s.Sites {
		t.stacks.Stack(s.Sites[i].Stack)
	}
	s.Warnings = append(s.Warnings, t.stacks.warnings()...)
	for _, text := range t.unwind.Problems() {
		s.Warnings = append(s.Warnings, symbolize.Clean(text))
	}
	s.Warnings = append(s.Warnings, t.faults()...)
	return s
}

func (t *Tracer) takeBooks(blocks map[uint32][]ledger.Block) *ledger.Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.snapshot(blocks)
}

// snapshot copies the books, with these blocks in their segments; t.mu is held.
func (t *Tracer) snapshot(blocks map[uint32][]ledger.Block) *ledger.Snapshot {
	t.bringUpToDate(blocks)
	return t.ledger.Snapshot(now(), time.Now())
}

// bringUpToDate tells the books what is not told by events; t.mu is held.
func (t *Tracer) bringUpToDate(blocks map[uint32][]ledger.Block) {
	t.books.SetStats(t.stats())
	t.readTensors(0)
	for pid, list := range blocks {
		t.books.SetBlocks(pid, list)
	}
	t.markSegments()
	if t.blocksUnread.Load() {
		t.books.Warn("not all live tensors could be placed in their segments: PyTorch's cache may be too high")
	}
	if t.config.WantTensors && !t.tensorsProbed.Load() {
		t.books.Warn("no traced process has a PyTorch whose allocator reports tensors")
	}
}
