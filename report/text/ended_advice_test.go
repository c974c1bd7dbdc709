// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestNothingIsAdvisedToAProcessThatHasEnded: what only a running process can do stands in the
// reports of sessions that run, and not in those of sessions that have ended.
func TestNothingIsAdvisedToAProcessThatHasEnded(t *testing.T) {
	o, screen := report.Options{Top: 10}, Screen{Width: 100}
	running := map[string]bool{"torch.cuda.empty_cache() gives": false, "cannot go back to the driver": false, ", full in ": false, "are asleep now": false}
	for name, in := range map[string]struct {
		s  *ledger.Snapshot
		st callstack.Stacks
	}{
		"plain": {reporttest.Snapshot(), reporttest.Stacks()}, "stuck": {reporttest.Stuck(), reporttest.StuckStacks()}, "held": {reporttest.Held(), reporttest.HeldStacks()},
		"asleep": {reporttest.AsleepSnapshot(), reporttest.Stacks()},
	} {
		for _, ended := range []bool{false, true} {
			for i := range in.s.Processes {
				if in.s.Processes[i].End = 0; ended {
					in.s.Processes[i].End = in.s.End - 1
				}
			}
			var b bytes.Buffer
			err := errors.Join(WriteSummary(&b, in.s, in.st, o, screen), WriteCache(&b, in.s, in.st, o, screen), WriteLeaks(&b, in.s, in.st, o, screen), WriteLeaksBrief(&b, in.s, in.st, o, screen))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(strings.Fields(b.String()), " ")
			for phrase := range running {
				if strings.Contains(text, phrase) {
					running[phrase] = true
					if ended {
						t.Errorf("%s: %q is said of a process that has ended", name, phrase)
					}
				}
			}
		}
	}
	for phrase, said := range running {
		if !said {
			t.Errorf("no report says %q: it is not tested", phrase)
		}
	}
}

// TestTheTimelineEndsWithWhatTheOtherViewsShow of a process that has ended: what it had at its end.
func TestTheTimelineEndsWithWhatTheOtherViewsShow(t *testing.T) {
	s := reporttest.Ended()
	w, earlier := timeline.NewWindow(60*reporttest.Second), *s
	earlier.End -= 10 * reporttest.Second
	w.Add(&earlier)
	w.Add(s)
	var b bytes.Buffer
	if err := WriteTimeline(&b, s, w.Timeline(nil), reporttest.Stacks(), report.Options{Top: 10}, Screen{Width: 100}); err != nil {
		t.Fatal(err)
	}
	parts := s.Parts()
	if len(parts) != 2 {
		t.Fatalf("%d parts", len(parts))
	}
	for i := range parts {
		x := &parts[i]
		name := format.Process(&s.Processes[x.Process])
		_, section, found := strings.Cut(b.String(), name)
		if !found {
			t.Fatalf("the timeline lacks %s:\n%s", name, &b)
		}
		usage := strings.Fields(strings.Split(section, "\n")[2])
		if got := strings.Join(usage[len(usage)-2:], " "); !strings.Contains(strings.Split(section, "\n")[0], "ended at") || got != format.Bytes(report.PartUsage(x)) {
			t.Errorf("%s: the timeline ends with %s, the parts have %s:\n%s", name, got, format.Bytes(report.PartUsage(x)), &b)
		}
	}
}

// TestGrowthInAMomentIsNotShown: "in the last 72ms" says nothing of a program.
func TestGrowthInAMomentIsNotShown(t *testing.T) {
	for _, c := range []struct {
		session uint64 // ns
		shown   bool
	}{{144e6, false}, {1.9e9, false}, {2e9, true}, {60e9, true}} {
		s := reporttest.Snapshot()
		s.Begin = s.End - c.session
		for i := range s.Processes {
			s.Processes[i].Begin = s.Begin
		}
		var b bytes.Buffer
		if err := errors.Join(WriteSummary(&b, s, reporttest.Stacks(), report.Options{}, Screen{}), WriteLeaksBrief(&b, s, reporttest.Stacks(), report.Options{}, Screen{})); err != nil {
			t.Fatal(err)
		}
		half := format.Span(c.session / 2)
		for _, text := range []string{" in the last " + half, "  last " + half} {
			if got := strings.Contains(strings.Join(strings.Split(b.String(), "\n"), " "), text); got != c.shown {
				t.Errorf("%s: %q is shown: %v\n%s", format.Span(c.session), text, got, &b)
			}
		}
	}
}
