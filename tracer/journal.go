// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
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

func (j journaled) Begin(time uint64) {
	j.journal.Begin(time)
	j.books.Begin(time)
}

func (j journaled) Apply(e *ledger.Event) {
	j.journal.Apply(e)
	j.books.Apply(e)
}

func (j journaled) SetProcess(p ledger.Process) {
	j.journal.SetProcess(p)
	j.books.SetProcess(p)
}

func (j journaled) SetDevices(pid uint32, ordinals []string) {
	j.journal.SetDevices(pid, ordinals)
	j.books.SetDevices(pid, ordinals)
}

func (j journaled) SetGPUs(g []ledger.GPU) {
	j.journal.SetGPUs(g)
	j.books.SetGPUs(g)
}

func (j journaled) OpenUsage(time uint64) {
	j.journal.OpenUsage(time)
	j.books.OpenUsage(time)
}

func (j journaled) SetUsage(time uint64, usages []ledger.Usage) {
	j.journal.SetUsage(time, usages)
	j.books.SetUsage(time, usages)
}

func (j journaled) SetTensors(time uint64, totals []ledger.TensorTotals) {
	j.journal.SetTensors(time, totals)
	j.books.SetTensors(time, totals)
}

func (j journaled) SetBlocks(pid uint32, list []ledger.Block) {
	j.journal.SetBlocks(pid, list) // first: the list is the ledger's from then on
	j.books.SetBlocks(pid, list)
}

func (j journaled) SetSegments(stacks []uint64) {
	j.journal.SetSegments(stacks)
	j.books.SetSegments(stacks)
}

func (j journaled) SetSampling(p []float64) {
	j.journal.SetSampling(p)
	j.books.SetSampling(p)
}

func (j journaled) SetSampleRate(r ledger.SampleRate) {
	j.journal.SetSampleRate(r)
	j.books.SetSampleRate(r)
}

func (j journaled) SetStats(s ledger.Stats) {
	j.journal.SetStats(s)
	j.books.SetStats(s)
}

func (j journaled) SetLimits(x ledger.Limits) {
	j.journal.SetLimits(x)
	j.books.SetLimits(x)
}

func (j journaled) WarnOf(pid uint32, text string) {
	j.journal.WarnOf(pid, text)
	j.books.WarnOf(pid, text)
}

func (j journaled) Warn(text string) {
	j.journal.Warn(text)
	j.books.Warn(text)
}

// markSegments tells the books which driver allocations PyTorch's allocator made; t.mu is held. The journal is
// told the answers: a stack that comes too late for one question must be so in a replay too.
func (t *Tracer) markSegments() {
	answers := map[uint64]bool{}
	var segments []uint64
	t.ledger.MarkSegments(func(stack uint64) bool {
		is, known := answers[stack]
		if !known {
			is = t.stacks.passes(stack, torchCUDA)
			answers[stack] = is
			if is {
				segments = append(segments, stack)
			}
		}
		return is
	})
	if t.config.Journal != nil && len(segments) > 0 {
		t.config.Journal.SetSegments(segments)
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
