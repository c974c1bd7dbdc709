// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Least precision and recall, of all programs and of a sample of them, where one error counts more.
const (
	enough         = 0.95
	enoughOfSample = 0.75
)

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
func (p *observed) isLeak(o *observation, s *ledger.Snapshot, g *verdict.Group) bool {
	if filepath.Base(g.Line.File) == p.Name {
		return slices.Contains(p.Lines, g.Line.Line)
	}
	if p.Frames == "" {
		return false
	}
	frames := regexp.MustCompile(p.Frames)
	return slices.ContainsFunc(g.Sites, func(i int) bool {
		return slices.ContainsFunc(o.Stack(s.Sites[i].Stack), func(f callstack.Frame) bool { return frames.MatchString(f.Function) })
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

func (p *observed) outcome(o *observation, s *ledger.Snapshot, groups []verdict.Group) outcome {
	out := outcome{observed: p}
	for _, pid := range p.PIDs {
		var before *verdict.Group
		for i := range groups {
			g := &groups[i]
			if s.Processes[g.Process].PID != pid {
				continue
			}
			right, called := p.Leaking && p.isLeak(o, s, g), g.Class == verdict.Leaking
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

// figures are how often the verdict was right.
type figures struct{ programs, leaking, found, alarms int }

func (f *figures) add(r *outcome) {
	f.programs++
	if r.Leaking {
		f.leaking++
	}
	if r.first != nil {
		f.found++
	}
	f.alarms += len(r.alarms)
}

func (f *figures) precision() float64 { return share(f.found, f.found+f.alarms) }
func (f *figures) recall() float64    { return share(f.found, f.leaking) }

// String returns both with their intervals: "precision 0.960 (0.804 to 0.993)".
func (f *figures) String() string {
	interval := func(k, n int) string {
		low, high := wilson(k, n)
		return fmt.Sprintf("%.3f (%.3f to %.3f)", share(k, n), low, high)
	}
	return fmt.Sprintf("%d programs, %d of them leaking: %d found, %d false alarms: precision %s, recall %s",
		f.programs, f.leaking, f.found, f.alarms, interval(f.found, f.found+f.alarms), interval(f.found, f.leaking))
}

// judge prints the expected and the actual verdict of each program at each moment, and fails if too
// many are wrong.
func judge(t *testing.T, seen []*observation, enough float64) {
	t.Helper()
	for n, m := range seen[0].Moments {
		judgeMoment(t, seen, n, m.Seconds, enough)
	}
}

func judgeMoment(t *testing.T, seen []*observation, n, seconds int, enough float64) {
	t.Helper()
	var rows, wrong []string
	var total figures
	sets := map[string]*figures{older: {}, forWork: {}, forCheck: {}}
	for _, o := range seen {
		s := o.Moments[n].Snapshot
		groups := verdict.JudgeLines(s, verdict.Judge(s, o))
		for i := range o.Programs {
			r := o.Programs[i].outcome(o, s, groups)
			attach := "early"
			if r.Late {
				attach = "late"
			}
			row := fmt.Sprintf("%-24s %-5s %s\n    %s", r.Name, attach, r.expected(), r.got())
			rows = append(rows, row)
			if r.Leaking != (r.first != nil) || len(r.alarms) > 0 {
				wrong = append(wrong, row)
			}
			total.add(&r)
			sets[r.set()].add(&r)
		}
	}
	slices.Sort(rows)
	slices.Sort(wrong)
	t.Logf("after %d s\n%s\n\n%s", seconds, strings.Join(rows, "\n"), &total)
	for _, set := range []string{older, forWork, forCheck} {
		t.Logf("%s: %s", set, sets[set])
	}
	if total.precision() < enough || total.recall() < enough {
		t.Errorf("after %d s: %s; want %.2f of each. Wrong:\n%s", seconds, &total, enough, strings.Join(wrong, "\n"))
	}
}

// wilson returns the 95 % interval of a share (E. Wilson: Probable Inference, JASA 22, 1927).
func wilson(k, n int) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	const z = 1.96
	p, m := float64(k)/float64(n), float64(n)
	middle, half := p+z*z/(2*m), z*math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return max((middle-half)/(1+z*z/m), 0), min((middle+half)/(1+z*z/m), 1)
}

// share returns part/all, or 1 if all is 0.
func share(part, all int) float64 {
	if all == 0 {
		return 1
	}
	return float64(part) / float64(all)
}
