// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Texts are the sentences beside the figures of a snapshot, without a full stop.
type Texts struct {
	Remarks  []string // see Remarks
	Doubts   []string // what the ledger could not account for
	Warnings []string // the snapshot's own
}

// NewTexts returns the texts of a snapshot, clean of control characters.
func NewTexts(s *ledger.Snapshot, st callstack.Stacks) Texts {
	t := Texts{Remarks: slices.Concat(TorchTexts(s), StuckTexts(s, st), Remarks(s, st))}
	for i := range t.Remarks {
		t.Remarks[i] = untrusted.Clean(t.Remarks[i])
	}
	if len(s.Failures) > 0 {
		t.Remarks = append(t.Remarks, FailuresText(s))
	}
	for _, d := range Doubts(s) {
		if d.At == AtTitle {
			t.Warnings = append(t.Warnings, d.Text)
		} else {
			t.Doubts = append(t.Doubts, d.Text)
		}
	}
	return t
}

// PartLine is a term of one part, with its bytes.
type PartLine struct {
	Name  string
	Bytes uint64
}

// PartLines returns the terms of a part, which add up to usage. They are the same for all parts,
// with "unexplained" last.
func PartLines(x *ledger.Part) (lines []PartLine, usage uint64) {
	for i := range PartTerms {
		lines = append(lines, PartLine{PartTerms[i].Name, PartTerms[i].Bytes(x)})
	}
	return append(lines, PartLine{"unexplained", x.Unexplained}), PartUsage(x)
}

const lineColumns = 60 // most columns of a line of code inside a sentence

// LineText returns the line of the user's own code in a stack: "train.py:42 Trainer.step".
func LineText(st callstack.Stacks, stack uint64, api string) string {
	list := frames.Visible(st, stack, api)
	f := &list[frames.Headline(list)]
	if f.Mark {
		return "an unknown line (" + untrusted.Clean(api) + ")"
	}
	return frames.Text(f, lineColumns)
}
