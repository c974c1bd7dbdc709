// SPDX-License-Identifier: Apache-2.0

package report

import (
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Judgement is what package verdict finds in a snapshot, in words.
type Judgement struct {
	Groups []verdict.Group // lines of code, the worst first
	Advice []string        // sentences on what to do, with the evidence; clean of control characters
	Brief  []string        // Advice without the evidence

	sites int // of the snapshot
}

// Judge judges each line of code that allocates.
func Judge(s *ledger.Snapshot, st callstack.Stacks) *Judgement {
	list := verdict.Judge(s, st)
	j := &Judgement{Groups: verdict.JudgeLines(s, list), sites: len(s.Sites)}
	for _, a := range verdict.Advise(s, st, list) {
		j.Advice = append(j.Advice, adviceText(&a))
		a.Evidence = ""
		j.Brief = append(j.Brief, adviceText(&a))
	}
	return j
}

// Leaking counts the lines that leak.
func (j *Judgement) Leaking() (n int) {
	for i := range j.Groups {
		if j.Groups[i].Class == verdict.Leaking {
			n++
		}
	}
	return n
}

// SiteVerdict is the verdict on the line of code of one site. It is empty if the site has none.
type SiteVerdict struct {
	Class   string // leaking, growing, cache, steady, one-off
	Library string // what one of NVIDIA's libraries took for itself: "cuBLAS workspace"; or ""
	Text    string // the evidence, and the time until the GPU is full; one line, clean of control characters
}

// Sites returns the verdict on each site, in the order of Snapshot.Sites.
func (j *Judgement) Sites() []SiteVerdict {
	list := make([]SiteVerdict, j.sites)
	for i := range j.Groups {
		g := &j.Groups[i]
		text := untrusted.Clean(g.Evidence)
		if what := g.Object.String(); what != "" {
			text += "; " + what
		}
		if g.UntilFull > 0 {
			text += "; the GPU is full in " + format.Span(uint64(g.UntilFull)) + " at this rate"
		}
		for _, site := range g.Sites {
			list[site] = SiteVerdict{Class: g.Class.String(), Text: text}
			if g.Object.OfLibrary() {
				list[site].Library = g.Object.String()
			}
		}
	}
	return list
}

// adviceText returns "train.py:73 Job.step: keep loss.item() … (evidence)".
func adviceText(a *verdict.Advice) string {
	text := a.Text
	if a.Line.Function != "" {
		front, back := frames.Parts(&a.Line)
		text = format.Join(front, back) + ": " + text
	}
	if a.Evidence != "" {
		text += " (" + a.Evidence + ")"
	}
	return untrusted.Clean(text)
}
