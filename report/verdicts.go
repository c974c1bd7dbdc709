// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Judgement is what package verdict says of a snapshot.
type Judgement struct {
	Groups []verdict.Group // the worst first
	Advice []string        // clean of control characters
}

func Judge(s *ledger.Snapshot, st callstack.Stacks) Judgement {
	list := verdict.Judge(s, st)
	j := Judgement{Groups: verdict.JudgeLines(s, list)}
	for _, a := range verdict.Advise(s, st, list) {
		j.Advice = append(j.Advice, adviceText(&a))
	}
	return j
}

// adviceText is "train.py:73 Job.step: keep loss.item() … (evidence)".
func adviceText(a *verdict.Advice) string {
	text := a.Text
	if a.Line.Function != "" {
		front, back := frames.Parts(&a.Line)
		text = words.Join(front, back) + ": " + text
	}
	if a.Evidence != "" {
		text += " (" + a.Evidence + ")"
	}
	return untrusted.Clean(text)
}

// Advice is what to do about what grows, a sentence each, with the evidence.
func Advice(s *ledger.Snapshot, st callstack.Stacks) []string {
	return Judge(s, st).Advice
}

// Leaking counts the lines of which the verdict is that they leak.
func Leaking(s *ledger.Snapshot, st callstack.Stacks) (n int) {
	for _, g := range Judge(s, st).Groups {
		if g.Class == verdict.Leaking {
			n++
		}
	}
	return n
}
