// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/stacks"
)

// journaled tells a journal all that the books are told, in the same order.
type journaled struct {
	books   *ledger.Ledger
	journal ledger.Books
}

// booksFor returns what takes the inputs of l: l alone, or with a journal.
func booksFor(l *ledger.Ledger, journal ledger.Books) ledger.Books {
	if journal == nil {
		return l
	}
	return journaled{l, journal}
}

func (j journaled) Apply(e *ledger.Event) {
	j.journal.Apply(e)
	j.books.Apply(e)
}

func (j journaled) Tell(in ledger.Input) {
	j.journal.Tell(in) // first: the list of a BlockList is the ledger's from then on
	j.books.Tell(in)
}

// markSegments tells the books which driver allocations PyTorch's allocator made; t.mu is held. The journal is
// told the answers: a stack that comes too late for one question must be so in a replay too.
func (t *Tracer) markSegments() {
	answers := map[uint64]bool{}
	var segments []uint64
	t.ledger.MarkSegments(func(stack uint64) bool {
		is, known := answers[stack]
		if !known {
			is = t.stacks.Passes(stack, stacks.TorchCUDA)
			answers[stack] = is
			if is {
				segments = append(segments, stack)
			}
		}
		return is
	})
	if t.config.Journal != nil && len(segments) > 0 {
		t.config.Journal.Tell(ledger.Segments(segments))
	}
}

// A journal is told every few seconds what otherwise only a snapshot asks for, so that it can show
// any moment. Of so many tensors the blocks are left out: to walk them takes long.
const (
	journalInterval = 10 * time.Second
	maxJournaled    = 200_000
)

// keepJournal does so until ctx ends.
func (t *Tracer) keepJournal(ctx context.Context) {
	if t.config.Journal == nil {
		return
	}
	tick := time.NewTicker(journalInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			t.readBooks(maxJournaled)
		}
	}
}
