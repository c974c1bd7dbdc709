// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Verdicts are the verdicts on the lines of one snapshot. They fit later snapshots of the session.
type Verdicts struct {
	judgement *report.Judgement
	at        uint64 // end of the snapshot, ns
	sites     map[ledger.SiteID]*judged
	heads     map[ledger.SiteID]int // index of the headline in the stack, of those that frames.Headline does not name
}

// judged is the verdict on one line of code.
type judged struct {
	class verdict.Class
	text  string // the evidence; one line, clean of control characters
}

// Judge judges each line of code that allocates. It may be called in any goroutine.
func Judge(s *ledger.Snapshot, st callstack.Stacks) *Verdicts {
	v := &Verdicts{judgement: report.Judge(s, st), at: s.End, sites: make(map[ledger.SiteID]*judged, len(s.Sites)), heads: map[ledger.SiteID]int{}}
	for i := range v.judgement.Groups {
		g := &v.judgement.Groups[i]
		j := &judged{class: g.Class, text: v.judgement.Evidence(i)}
		for _, n := range g.Sites {
			v.sites[s.IDOf(&s.Sites[n])] = j
			if g.Class == verdict.Leaking {
				_, v.heads[s.IDOf(&s.Sites[n])] = v.judgement.Headline(s, st, &s.Sites[n])
			}
		}
	}
	return v
}

// growthText returns what grows on the GPU that fills fastest, "" if nothing does or it is not
// judged yet: "GPU 0 fills: PyTorch cache grows: 3.39 GiB in 10s …".
func (b *books) growthText() string {
	if b == nil || b.Judged == nil {
		return ""
	}
	for i := range b.Judged.judgement.GPUs {
		if g := &b.Judged.judgement.GPUs[i]; len(g.Grows) > 0 {
			return tidy(g.Name + ": " + strings.Join(g.Grows, "; "))
		}
	}
	return ""
}

// judgementOf returns what was judged, nil if nothing was yet.
func (v *Verdicts) judgementOf() *report.Judgement {
	if v == nil {
		return nil
	}
	return v.judgement
}

// of returns the verdict on the line of a site, nil if it has none yet.
func (v *Verdicts) of(s *ledger.Snapshot, x *ledger.Site) *judged {
	if v == nil {
		return nil
	}
	return v.sites[s.IDOf(x)]
}

// classMark returns a verdict in a column: the sign tells it without colour.
func classMark(c verdict.Class) string {
	switch c {
	case 0:
		return ""
	case verdict.Leaking:
		return "! leaking"
	case verdict.Growing:
		return "+ growing"
	}
	return "  " + c.String()
}

func classStyle(c verdict.Class) style {
	switch c {
	case verdict.Leaking:
		return alarm
	case verdict.Growing:
		return warning
	case 0:
		return plain
	}
	return dim
}
