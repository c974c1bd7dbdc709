// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func briefText(t *testing.T, s *ledger.Snapshot, st callstack.Stacks, o report.Options, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteLeaksBrief(&b, s, st, o, Screen{Width: width}); err != nil {
		t.Fatal(err)
	}
	reporttest.CheckText(t, b.String(), width)
	return b.String()
}

func TestBriefLeaks(t *testing.T) {
	for name, x := range map[string]struct {
		s  *ledger.Snapshot
		st callstack.Stacks
	}{
		"brief":       {reporttest.Snapshot(), reporttest.Stacks()},
		"brief-torch": {reporttest.TorchSnapshot(), reporttest.TorchStacks()},
		"brief-held":  {reporttest.Held(), reporttest.HeldStacks()},
		"brief-deep":  {reporttest.Snapshot(), deepStacks()},
	} {
		for _, width := range []int{40, 44, 80, 120} {
			reporttest.Golden(t, fmt.Sprintf("%s%d.txt", name, width), []byte(briefText(t, x.s, x.st, report.Options{}, width)))
		}
		for width := minWidth; width <= 100; width++ {
			o := []report.Options{{}, {Top: 1}, {Older: time.Second}}[width%3]
			if briefText(t, x.s, x.st, o, width); t.Failed() {
				t.Fatalf("%s at width %d with %+v", name, width, o)
			}
		}
	}
}

// deepStacks are as those of the real PyTorch: 33 frames of libraries below the line of Python, and
// a recursion above it.
func deepStacks() reporttest.StackMap {
	st := reporttest.Stacks()
	list := []callstack.Frame{reporttest.Native("c10::reportMemoryUsageToProfiler(void*)", reporttest.C10, 1)}
	for i := range uint64(30) {
		list = append(list, reporttest.Native(fmt.Sprintf("libtorch_cpu.so+%#x", 0x45dd9000+i), reporttest.TorchCPU, i))
	}
	list = append(list, reporttest.Script("relu", "/opt/venv/lib/python3.11/site-packages/torch/nn/functional.py", 1704),
		reporttest.Script("Module._call_impl", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1750))
	for range 40 {
		list = append(list, reporttest.Script("walk", "/home/ada/llm/tree.py", 12))
	}
	st[1] = append(list, reporttest.Script("<module>", "/home/ada/llm/train.py", 7), reporttest.Native("__libc_start_main", reporttest.Libc, 1))
	return st
}

func TestAStackIsFolded(t *testing.T) {
	lib := func(n int) (list []callstack.Frame) {
		for range n {
			list = append(list, reporttest.Native("at::f", reporttest.TorchCPU, 1))
		}
		return list
	}
	own, main := reporttest.Script("step", "/home/ada/train.py", 1), reporttest.Native("main", reporttest.Infer, 1)
	thread := reporttest.Script("Thread.run", "/usr/lib/python3.11/threading.py", 975)
	mark := callstack.Frame{Function: "[truncated: too deep]", Mark: true}
	for _, c := range []struct {
		list []callstack.Frame
		want string
	}{
		{slices.Concat(lib(14), []callstack.Frame{own}, lib(3), []callstack.Frame{main}, lib(2)), "…14 step …3 main"},
		{slices.Concat(lib(2), []callstack.Frame{own, thread}, lib(2)), "…2 step …3"}, // a thread's function is worth a line
		{slices.Concat(lib(1), []callstack.Frame{own}, lib(1)), "at::f step"},
		{slices.Concat(lib(3), []callstack.Frame{mark}), "at::f …2 [truncated: too deep]"},
		{slices.Concat(lib(2), slices.Repeat([]callstack.Frame{own}, 30), []callstack.Frame{main}), "…2 step step step step step …23 step step main"},
	} {
		var parts []string
		for _, l := range foldedLines(c.list, frames.Headline(c.list)) {
			if l.frame != nil {
				parts = append(parts, l.frame.Function)
			} else {
				parts = append(parts, fmt.Sprintf("…%d", l.skipped))
			}
		}
		if got := strings.Join(parts, " "); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// A usual training with a leak fits a terminal of 80 columns and 24 lines.
func TestBriefLeaksFitOneScreen(t *testing.T) {
	s := reporttest.Held()
	s.Failures = nil
	text := briefText(t, s, reporttest.HeldStacks(), report.Options{}, 80)
	if n := strings.Count(text, "\n"); n > briefRows {
		t.Errorf("%d lines, want at most %d:\n%s", n, briefRows, text)
	}
}

// Every rate per minute of a line that leaks names the time that it is over.
func TestRatesNameTheirSpan(t *testing.T) {
	var full, summary bytes.Buffer
	s, st := reporttest.Held(), reporttest.HeldStacks()
	if err := WriteLeaks(&full, s, st, report.Options{}, Screen{Width: 1000}); err != nil {
		t.Fatal(err)
	}
	if err := WriteSummary(&summary, s, st, report.Options{}, Screen{Width: 1000}); err != nil {
		t.Fatal(err)
	}
	rates := 0
	for line := range strings.Lines(full.String() + summary.String() + briefText(t, s, st, report.Options{}, 1000)) {
		if !strings.HasPrefix(line, "    ") || !strings.Contains(line, "/min") {
			continue // of a GPU in all, or since the first walk
		}
		if rates++; !strings.Contains(line, "/min over ") && !strings.Contains(line, " in the last ") {
			t.Errorf("a rate without its span: %s", line)
		}
	}
	if rates == 0 {
		t.Error("no rate")
	}
}

func TestFoldedNotesAreCounted(t *testing.T) {
	s := reporttest.Snapshot()
	for i := range 9 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("warning %d", i))
	}
	text, all := briefText(t, s, reporttest.Stacks(), report.Options{}, 80), report.Doubts(s)
	shown := 0
	for _, d := range all {
		if strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(d.Text), " ")) {
			shown++
		} else if d.At == report.AtTotals {
			t.Errorf("a note that changes totals is left out: %s", d.Text)
		}
	}
	if want := format.Count(uint64(len(all)-shown), "more note") + " (with -v)"; !strings.Contains(text, want) {
		t.Errorf("%q is missing in\n%s", want, text)
	}
}

// The lines of one kept graph share their callers and their holder, which are written once.
func TestLinesOfOneGraphReferToTheFirst(t *testing.T) {
	s, st := reporttest.Held(), reporttest.HeldStacks()
	n := slices.IndexFunc(s.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Growth > 0 })
	second := s.Sites[n]
	second.Stack = 1 << 20
	s.Sites = append(s.Sites, second)
	stack := slices.Clone(st[s.Sites[n].Stack])
	stack[frames.Headline(stack)].Line++ // another line of the same forward pass
	st[second.Stack] = stack
	text := briefText(t, s, st, report.Options{}, 100)
	if strings.Count(text, "same callers and holder as line 1\n") != 1 || strings.Count(text, "library frames") != 1 || strings.Count(text, "kept by") != 1 {
		t.Errorf("want the second line to refer to the first:\n%s", text)
	}
}

func TestBriefRowsNameTheirDoubts(t *testing.T) {
	s, st := reporttest.Flooded()
	text := briefText(t, s, st, report.Options{}, 80)
	if strings.Count(text, incomplete) != 2 || !strings.Contains(text, "[7] is incomplete: 12 events lost") && !strings.Contains(text, "flood [7]") {
		t.Errorf("want two incomplete rows and the reason:\n%s", text)
	}
	s.Sites[2].Kind = ledger.Imported
	if text := briefText(t, s, st, report.Options{}, 80); !strings.Contains(text, "(imported) honest_work") || !strings.Contains(text, "not counted: 1 allocation, 7.00 MiB of imported memory") {
		t.Errorf("imported memory has no mark:\n%s", text)
	}
}

func TestVerdictsFollowWhatIsMine(t *testing.T) {
	st := frames.Mine(reporttest.Stacks(), regexp.MustCompile(`torch/nn/`))
	text := briefText(t, reporttest.Snapshot(), st, report.Options{}, 80)
	if !strings.Contains(text, "\n1.  leaking   torch/nn/modules/linear.py:125 Linear.forward\n") || strings.Contains(text, "Trainer.step") {
		t.Errorf("want linear.py as the user's own code, and train.py as a library:\n%s", text)
	}
}

// Of a long name that does not fit, the end is shown: it tells classes apart.
func TestALongNameIsCutAtItsBeginning(t *testing.T) {
	const text = "kept by C++ object of class torch::distributed::rpc::profiler::processglobal::StateStackEntry"
	for _, more := range []string{"", ", list of 1,204"} {
		p := brief{page: newPage(Screen{Width: 80})}
		p.shortened("   ", strings.Fields(text+more), 1, anyWord)
		got := p.String()
		if !strings.Contains(got, "::StateStackEntry") || !strings.Contains(got, "of class …") || strings.Count(got, "\n") != 1 || format.Width(got) > 81 {
			t.Errorf("%q", got)
		}
	}
}

// In a session of some milliseconds, growth is a sample of a step.
func TestGrowthOfMillisecondsIsNotShown(t *testing.T) {
	for _, c := range []struct {
		growth int64
		over   uint64
		want   string
	}{
		{1 << 20, 72e6, ""}, {0, 72e6, ""}, {0, 2e9, "steady"}, {1 << 20, 0, ""}, {1 << 20, 2e9, "+1.00 MiB in the last 2.0s (+30.0 MiB/min)"},
	} {
		if got := growthIn(c.growth, c.over); got != c.want {
			t.Errorf("%d bytes in %d ns: %q, want %q", c.growth, c.over, got, c.want)
		}
	}
}

// Lines of one name are told apart by what differs, and a line of a process that freed all when it
// ended has what it held, not 0 B.
func TestLinesOfOneNameAndOfEndedProcesses(t *testing.T) {
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7, Comm: "a"}, {PID: 8, Comm: "b", End: 9}},
		Sites:     []ledger.Site{{Peak: 3 << 20}, {Peak: 2 << 20}},
	}
	line := callstack.Frame{Function: "f", File: "/x/helper.py", Line: 8, Python: true}
	group := func(process int, device int32, live uint64, line callstack.Frame) verdict.Group {
		return verdict.Group{Verdict: verdict.Verdict{Class: verdict.Growing, Line: line}, Process: process, Device: device, LiveBytes: live, LiveObjects: 1, Sites: []int{0, 1}}
	}
	list := []verdict.Group{group(0, 0, 1<<20, line), group(0, 1, 1<<20, line), group(1, 1, 0, line), group(0, 1, 1<<20, callstack.Frame{Function: "g"})}
	p := brief{page: newPage(Screen{Width: 80}), s: s, jobs: ranks.New(s)}
	judged := p.jobs.Verdicts(list)
	p.otherVerdicts(judged, 0)
	want := `1.  growing   1.00 MiB  [7] cuda:0  /x/helper.py:8 f
2.  growing   1.00 MiB  [7] cuda:1  /x/helper.py:8 f
3.  growing   5.00 MiB  [8] cuda:1  /x/helper.py:8 f
    1 more line (-T shows more)
`
	if p.String() != want {
		t.Errorf("%s, want\n%s", p.String(), want)
	}
	if got := p.tag(&judged[3], judged); got != "" {
		t.Errorf("a name that no other has needs %q", got)
	}
	if got := amountText(s, &list[2]); got != "up to 5.00 MiB of 2 sites until the process ended" {
		t.Error(got)
	}
}

// A narrow row of a session of milliseconds has no interval to name.
func TestANarrowRowOfAShortSessionReadsAsOne(t *testing.T) {
	for half, want := range map[uint64]string{1e6: "1 allocation, growth +1.00 MiB, 7", 9e9: "1 allocation, +1.00 MiB in the last 9.0s, 7"} {
		s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}}}
		p := &brief{page: newPage(Screen{Width: 44}), s: s, jobs: ranks.New(s), classes: map[siteKey]string{}, objects: map[siteKey]string{}}
		table := &siteTable{brief: p, half: half, pids: true}
		x := ledger.Site{LiveBytes: 1 << 20, LiveObjects: 1, Growth: 1 << 20}
		table.site(1, &lines.Row{Site: x, Sites: []ledger.Site{x}, Frame: callstack.Frame{Function: "f"}}, true)
		if got := p.String(); !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheHeaderOfALongSessionHasGaps(t *testing.T) {
	for half, want := range map[time.Duration]string{
		9*time.Minute + 12*time.Second: "count last 9m12s  verdict", 38*time.Minute + 12*time.Second: "count   last 38m  verdict",
		3*time.Hour + 5*time.Minute: "count last 3h05m  verdict", 10 * time.Hour: "count   last 10h  verdict", 12*24*time.Hour + 11*time.Hour: "count   last 12d  verdict",
	} {
		table := &siteTable{brief: &brief{}, half: uint64(half)}
		if got := table.header(); !strings.Contains(got, want) {
			t.Errorf("%v: %q", half, got)
		}
	}
}
