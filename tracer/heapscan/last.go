// SPDX-License-Identifier: Apache-2.0

package heapscan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// DefaultLastTime is how long the walks at the end take together by default.
const DefaultLastTime = 2 * time.Second

// Last walks all processes once more, the users in turn and of each the one with the most GPU
// memory first, until ctx ends or they have taken Options.LastTime. The first walk may take longer,
// as any walk may: a large process is walked, too, also on a busy machine. A warning counts the
// processes that were left out.
func (w *Walker) Last(ctx context.Context) {
	begin, pids, left := time.Now(), w.largestFirst(), 0
	for i, pid := range pids {
		limit := max(w.LastTime-time.Since(begin), 0)
		if i == 0 {
			limit = max(limit, walkTotal)
		}
		w.progress(i, len(pids))
		within, cancel := context.WithTimeoutCause(ctx, limit, errNoTime)
		if within.Err() == nil {
			w.visit(within, pid)
		}
		if within.Err() != nil { // the walk did not end in time, or did not begin
			left++
		}
		cancel()
	}
	w.progress(len(pids), len(pids))
	if left > 0 {
		w.Sequencer.Tell(ledger.Warning{Text: w.leftText(left, len(pids), ctx.Err() != nil)})
	}
}

// leftText returns what the walks at the end left out.
func (w *Walker) leftText(left, all int, skipped bool) string {
	why := fmt.Sprintf("ended after %v", w.LastTime)
	if skipped {
		why = "were skipped"
	}
	text := fmt.Sprintf("the walks for holders at the end %s: %d of %d processes have holders of an earlier walk or none", why, left, all)
	if !skipped {
		text += " (--holders-time allows more)"
	}
	return text
}

func (w *Walker) progress(done, of int) {
	if w.Progress != nil {
		w.Progress(done, of)
	}
}

// largestFirst returns the processes that are worth a last walk, in the order of their GPU memory,
// the users in turn.
func (w *Walker) largestFirst() []uint32 {
	pids := slices.DeleteFunc(w.Traced(), w.pointless)
	bytes := make(map[uint32]uint64, len(pids))
	tx := w.Sequencer.Begin()
	for _, pid := range pids {
		bytes[pid] = tx.Measured(pid)
	}
	tx.Done()
	slices.SortFunc(pids, func(a, b uint32) int { return cmp.Or(cmp.Compare(bytes[b], bytes[a]), cmp.Compare(a, b)) })
	return w.inTurn(pids)
}

// pointless reports whether a last walk would find nothing: none did, PyTorch's allocator was not
// used since, and no memory that CUDA gave out is live.
func (w *Walker) pointless(pid uint32) bool {
	w.mu.Lock()
	t := w.known[pid]
	never, worthwhile := t != nil && t.never, w.worthwhile(pid, t)
	w.mu.Unlock()
	if never || worthwhile {
		return never
	}
	tx := w.Sequencer.Begin()
	defer tx.Done()
	return len(tx.DriverMemory(pid, 1)) == 0
}
