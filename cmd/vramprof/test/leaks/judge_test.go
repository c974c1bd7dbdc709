// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const enough = 0.95 // precision and recall

// where names a group: "loss_list.py:15", or the function.
func where(g *verdict.Group) string {
	text := fmt.Sprintf("%s:%d", filepath.Base(g.Line.File), g.Line.Line)
	if g.Line.File == "" {
		text, _, _ = strings.Cut(g.Line.Function, "(")
	}
	if g.Segment {
		text += " (segments)"
	}
	return text
}

// isLeak reports whether a group is where, according to its author, the program leaks.
func (p *observed) isLeak(o *observation, g *verdict.Group) bool {
	if filepath.Base(g.Line.File) == p.Name {
		return slices.Contains(p.Lines, g.Line.Line)
	}
	if p.Frames == "" {
		return false
	}
	frames := regexp.MustCompile(p.Frames)
	return slices.ContainsFunc(g.Sites, func(i int) bool {
		return slices.ContainsFunc(o.Stack(o.Snapshot.Sites[i].Stack), func(f callstack.Frame) bool { return frames.MatchString(f.Function) })
	})
}

// outcome is the result of the verdict on one program.
type outcome struct {
	*observed
	first  *verdict.Group   // the leak, listed before all other leaking groups
	alarms []*verdict.Group // groups wrongly called leaking
	missed *verdict.Group   // the verdict's text about the leak, or nil if it is not listed
	behind *verdict.Group   // or the group listed before it
}

func (p *observed) outcome(o *observation, groups []verdict.Group) outcome {
	out := outcome{observed: p}
	for _, pid := range p.PIDs {
		var before *verdict.Group
		for i := range groups {
			g := &groups[i]
			if o.Snapshot.Processes[g.Process].PID != pid {
				continue
			}
			right, called := p.Leaking && p.isLeak(o, g), g.Class == verdict.Leaking
			switch {
			case right && called && before == nil:
				out.first = cmp.Or(out.first, g)
			case right:
				if out.first == nil && (out.missed == nil || out.missed.Segment && !g.Segment) {
					out.missed, out.behind = g, before
				}
			case called:
				out.alarms = append(out.alarms, g)
			}
			if called {
				before = cmp.Or(before, g)
			}
		}
	}
	return out
}

func (o *outcome) expected() string {
	if !o.Leaking {
		return "none"
	}
	var at []string
	for _, n := range o.Lines {
		at = append(at, fmt.Sprint(n))
	}
	if o.Frames != "" {
		at = append(at, "…"+o.Frames)
	}
	return "leaking, line " + strings.Join(at, " or ")
}

// got describes the verdict with its evidence.
func (o *outcome) got() string {
	var list []string
	say := func(what string, g *verdict.Group) { list = append(list, what+where(g)+", "+g.Evidence) }
	switch {
	case o.first != nil:
		say("found: ", o.first)
	case o.Leaking && o.missed == nil:
		list = append(list, "MISSED, not listed")
	case o.Leaking && o.behind != nil:
		say("BEHIND "+where(o.behind)+": ", o.missed)
	case o.Leaking:
		say("MISSED, "+o.missed.Class.String()+": ", o.missed)
	case len(o.alarms) == 0:
		list = append(list, "none")
	}
	for _, g := range o.alarms {
		say("FALSE ALARM: ", g)
	}
	return strings.Join(list, "\n    ")
}

// judge prints the expected and the actual verdict of each program, and fails if too many are
// wrong.
func judge(t *testing.T, seen []*observation) {
	t.Helper()
	var rows, wrong []string
	leaking, found, alarms := 0, 0, 0
	for _, o := range seen {
		groups := verdict.JudgeLines(o.Snapshot, verdict.Judge(o.Snapshot, o))
		for i := range o.Programs {
			r := o.Programs[i].outcome(o, groups)
			attach := "early"
			if r.Late {
				attach = "late"
			}
			row := fmt.Sprintf("%-24s %-5s %s\n    %s", r.Name, attach, r.expected(), r.got())
			rows = append(rows, row)
			if r.Leaking {
				leaking++
			}
			if r.first != nil {
				found++
			}
			alarms += len(r.alarms)
			if r.Leaking != (r.first != nil) || len(r.alarms) > 0 {
				wrong = append(wrong, row)
			}
		}
	}
	slices.Sort(rows)
	slices.Sort(wrong)
	precision, recall := share(found, found+alarms), share(found, leaking)
	t.Logf("\n%s\n\n%d programs, %d of them leaking: %d found, %d false alarms: precision %.3f, recall %.3f",
		strings.Join(rows, "\n"), len(rows), leaking, found, alarms, precision, recall)
	if precision < enough || recall < enough {
		t.Errorf("precision %.3f, recall %.3f, want %.2f of each. Wrong:\n%s", precision, recall, enough, strings.Join(wrong, "\n"))
	}
}

// share returns part/all, or 1 if all is 0.
func share(part, all int) float64 {
	if all == 0 {
		return 1
	}
	return float64(part) / float64(all)
}
