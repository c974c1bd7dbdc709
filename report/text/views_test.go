// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

var snapshotViews = map[string]func(io.Writer, *ledger.Snapshot, callstack.Stacks, report.Options, Screen) error{"tree": WriteTree, "table": WriteTable}

func TestViewsOfASnapshotAreStable(t *testing.T) {
	for name, write := range snapshotViews {
		for width, s := range map[string]*ledger.Snapshot{"": reporttest.TorchSnapshot(), "c": reporttest.Snapshot()} {
			var b bytes.Buffer
			st := reporttest.TorchStacks()
			if width == "c" {
				st = reporttest.Stacks()
			}
			if err := write(&b, s, st, report.Options{}, Screen{Width: 80}); err != nil {
				t.Fatal(err)
			}
			reporttest.Golden(t, name+width+"80.txt", b.Bytes())
			for line := range strings.Lines(b.String()) {
				if n := format.Width(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%s: %d columns: %s", name, n, line)
				}
			}
		}
	}
}

// everyView writes each view and report as text, by name.
func everyView(t *testing.T, s *ledger.Snapshot, st callstack.Stacks, width int) map[string]string {
	t.Helper()
	screen, o, since := Screen{Width: width}, report.Options{}, report.Options{Since: reporttest.Earlier(s)}
	changed := *s
	changed.Sites = slices.Clone(s.Sites[1:])
	a, b := profile.New(s, st), profile.New(&changed, st)
	oom := report.OOM{PID: s.Processes[0].PID, Time: s.End, Stack: 1, API: "torch", Kind: ledger.Tensor, Size: 3 << 30, Allocated: 2 << 30, Reserved: 5 << 30}
	texts := map[string]string{}
	for name, write := range map[string]func(io.Writer) error{
		"tree":           func(w io.Writer) error { return WriteTree(w, s, st, o, screen) },
		"table":          func(w io.Writer) error { return WriteTable(w, s, st, o, screen) },
		"stats":          func(w io.Writer) error { return WriteStats(w, s, reporttest.TorchSizes(), st, o, screen) },
		"timeline":       func(w io.Writer) error { return WriteTimeline(w, s, reporttest.TorchTimeline(s), st, o, screen) },
		"tree since":     func(w io.Writer) error { return WriteTree(w, s, st, since, screen) },
		"table since":    func(w io.Writer) error { return WriteTable(w, s, st, since, screen) },
		"stats since":    func(w io.Writer) error { return WriteStats(w, s, reporttest.TorchSizes(), st, since, screen) },
		"timeline since": func(w io.Writer) error { return WriteTimeline(w, s, reporttest.TorchTimeline(s), st, since, screen) },
		"summary":        func(w io.Writer) error { return WriteSummary(w, s, st, o, screen) },
		"leaks":          func(w io.Writer) error { return WriteLeaks(w, s, st, o, screen) },
		"older":          func(w io.Writer) error { return WriteLeaks(w, s, st, report.Options{Older: time.Hour}, screen) },
		"diff": func(w io.Writer) error {
			return WriteDiff(w, profile.Diff(a, b), [2]string{"a", "b"}, o, screen)
		},
		"oom": func(w io.Writer) error { return WriteOOM(w, s, st, oom, o, screen) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		texts[name] = b.String()
	}
	return texts
}

var byteFigure = regexp.MustCompile(`[-+]?[0-9][0-9.,]* (B|[KMGT]iB)\b`)

// TestEveryViewFitsEveryScreen: no line is wider than the terminal from 20 columns on, and no
// amount is cut that a wide one shows.
func TestEveryViewFitsEveryScreen(t *testing.T) {
	for name, s := range map[string]*ledger.Snapshot{"torch": reporttest.TorchSnapshot(), "CUDA": reporttest.Snapshot()} {
		st := reporttest.TorchStacks()
		if name == "CUDA" {
			st = reporttest.Stacks()
		}
		amounts := map[string]map[string]bool{}
		for width := 200; width >= minWidth; width-- {
			for view, text := range everyView(t, s, st, width) {
				if reporttest.CheckText(t, text, width); t.Failed() {
					t.Fatalf("%s of %s at %d columns:\n%s", view, name, width, text)
				}
				found := map[string]bool{}
				for _, x := range byteFigure.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
					found[x] = true
				}
				if width == 200 {
					amounts[view] = found
				}
				for x := range amounts[view] {
					if !found[x] && x != "0 B" { // parts that are 0 in all of a block are left out
						t.Errorf("%s of %s at %d columns lacks %s", view, name, width, x)
					}
				}
			}
		}
	}
}

func TestViewsOfAnIntervalShowWhatChanged(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	s.Sites[len(s.Sites)-1].AllocObjects += 100
	views := everyView(t, s, st, 80)
	for _, view := range []string{"tree", "table", "stats"} {
		reporttest.Golden(t, "between-"+view+"80.txt", []byte(views[view+" since"]))
	}
	o := report.Options{Since: reporttest.Earlier(s)}
	var sum int64
	for _, r := range report.ChangedRows(s, st, o) {
		if r.Plane != report.PlaneHost && r.Plane != report.PlaneManaged && r.Plane != report.PlaneAsleep {
			sum += r.Bytes - r.Before
		}
	}
	if tree := report.CallTree(s, st, o); tree.Bytes != sum || tree.Changed == 0 {
		t.Errorf("the tree changed by %d, the rows by %d", tree.Bytes, sum)
	}
	o.Since = s
	if tree := report.CallTree(s, st, o); tree.Changed != 0 || len(tree.Children) != 0 || len(report.ChangedRows(s, st, o)) != 0 {
		t.Error("a moment differs from itself")
	}
}

func TestATableNamesTheProcessOfEachRow(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	for width, want := range map[int]string{
		120: " 2.00 GiB  6.00 GiB          8  serve [5000]           other CUDA  cuda:0  /srv/serve.py:9 serve\n",
		90:  " 2.00 GiB  6.00 GiB  serve [5000]    other CUDA  cuda:0  /srv/serve.py:9 serve\n",
		80:  " 2.00 GiB  6.00 GiB  5000  other CUDA  cuda:0  /srv/serve.py:9 serve\n",
		44:  "2.00 GiB  /srv/serve.py:9 serve\n    8 allocations ², 6.00 GiB allocated,\n    serve [5000], other CUDA, cuda:0\n",
	} {
		if text := everyView(t, s, st, width)["table"]; !strings.Contains(text, want) {
			t.Errorf("%d columns: no %q in\n%s", width, want, text)
		}
	}
}

func TestEachLineOfATimelineHasItsOwnScale(t *testing.T) {
	s := reporttest.TorchSnapshot()
	charts := 0
	for line := range strings.Lines(everyView(t, s, reporttest.TorchStacks(), 80)["timeline"]) {
		if strings.ContainsAny(line, "▁▂▃▄▅▆▇█") {
			charts++
			if !strings.Contains(line, "█") {
				t.Errorf("the peak does not fill the line: %s", line)
			}
		}
	}
	if charts < 5 {
		t.Errorf("%d charts", charts)
	}
}

func TestATimelineOnATelephoneIsStable(t *testing.T) {
	s := reporttest.TorchSnapshot()
	reporttest.Golden(t, "timeline44.txt", []byte(everyView(t, s, reporttest.TorchStacks(), 44)["timeline"]))
}

func TestViewsOfARecordingAreStable(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	s.Sites[len(s.Sites)-1].AllocObjects += 100 // one that allocates and frees over and over
	s.Sites[len(s.Sites)-1].AllocBytes += 100 << 20
	o, screen := report.Options{Top: 3}, Screen{Width: 80}
	for name, write := range map[string]func(w io.Writer) error{
		"timeline80.txt": func(w io.Writer) error { return WriteTimeline(w, s, reporttest.TorchTimeline(s), st, o, screen) },
		"stats80.txt":    func(w io.Writer) error { return WriteStats(w, s, reporttest.TorchSizes(), st, o, screen) },
	} {
		var b, again bytes.Buffer
		if err := errors.Join(write(&b), write(&again)); err != nil {
			t.Fatal(err)
		}
		reporttest.Golden(t, name, b.Bytes())
		if b.String() != again.String() {
			t.Errorf("%s differs when it is written again", name)
		}
		for line := range strings.Lines(b.String()) {
			if n := format.Width(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}
