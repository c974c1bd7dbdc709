// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Marks returns why a site's figures or its stack are incomplete, none if they are complete.
func Marks(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site) []string {
	p := &s.Processes[x.Process]
	list := lostMarks(p)
	if x.Evicted > 0 {
		list = append(list, fmt.Sprintf("%s too many to follow: in no live figure", format.Count(x.Evicted, format.Noun(x.Kind))))
	}
	return append(list, stackMarks(st, p, x.Stack, x.Crowded)...)
}

func lostMarks(p *ledger.Process) []string {
	if p.Lost == 0 {
		return nil
	}
	return []string{format.Count(p.Lost, "event") + " of the process lost: figures can be too high or too low"}
}

// stackMarks returns why the stack of a row is missing.
func stackMarks(st callstack.Stacks, p *ledger.Process, stack, crowded uint64) []string {
	switch {
	case crowded > 0:
		return []string{fmt.Sprintf("several sites in one: their process has too many for a stack each (%s)", format.Count(crowded, "time"))}
	case stack != 0 && beyondStacks(p) && len(st.Stack(stack)) == 0:
		return []string{"stack not kept: its process has too many different ones"}
	}
	return nil
}

// MarkWords returns Marks in words that are the same at any moment, for labels of samples.
func MarkWords(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site) (list []string) {
	p := &s.Processes[x.Process]
	for _, w := range []struct {
		is   bool
		word string
	}{
		{p.Lost > 0, "lost events"},
		{x.Evicted > 0, "missing allocations"},
		{x.Crowded > 0, "several sites"},
		{x.Crowded == 0 && len(stackMarks(st, p, x.Stack, 0)) > 0, "missing stack"},
	} {
		if w.is {
			list = append(list, w.word)
		}
	}
	return list
}

func beyondStacks(p *ledger.Process) bool {
	for _, b := range p.Beyond {
		if b.Table == ledger.BeyondStacks {
			return true
		}
	}
	return false
}

// FailureMarks returns why the figures or the stack of a failed allocation are incomplete.
func FailureMarks(s *ledger.Snapshot, st callstack.Stacks, f *ledger.Failure) []string {
	p := &s.Processes[f.Process]
	return append(lostMarks(p), stackMarks(st, p, f.Stack, f.Crowded)...)
}

// ObjectMarks returns why the figures or the stack of driver objects are incomplete.
func ObjectMarks(s *ledger.Snapshot, st callstack.Stacks, o *ledger.Object) []string {
	p := &s.Processes[o.Process]
	list := lostMarks(p)
	if o.Evicted > 0 {
		list = append(list, format.Count(o.Evicted, "object")+" too many to follow: not among the live")
	}
	return append(list, stackMarks(st, p, o.Stack, o.Crowded)...)
}

// shareDoubts names each process that exceeded its share of a table, and each that lost events.
func shareDoubts(s *ledger.Snapshot) (list []Doubt) {
	const most = 16 // the JSON has all
	more := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Lost == 0 && len(p.Beyond) == 0 {
			continue
		}
		if len(list) == most {
			more++
			continue
		}
		var parts []string
		if p.Lost > 0 {
			parts = append(parts, format.Count(p.Lost, "event")+" lost")
		}
		for _, b := range p.Beyond {
			parts = append(parts, fmt.Sprintf("%s beyond its share of %s", format.Count(b.Count, "request"), b.Table))
		}
		list = append(list, Doubt{AtTotals, format.Process(p) + " is incomplete: " + strings.Join(parts, ", ")})
	}
	if more > 0 {
		list = append(list, Doubt{AtTotals, format.Count(uint64(more), "further process") + " incomplete"})
	}
	return list
}
