// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// judged is what package verdict says of a snapshot.
type judged struct {
	groups []verdict.Group // the worst first
	advice []string        // clean of control characters
}

func judge(s *ledger.Snapshot, st callstack.Stacks) judged {
	list := verdict.Judge(s, st)
	j := judged{groups: verdict.JudgeLines(s, list)}
	for _, a := range verdict.Advise(s, st, list) {
		j.advice = append(j.advice, adviceText(&a))
	}
	return j
}

// adviceText is "train.py:73 Job.step: keep loss.item() … (evidence)".
func adviceText(a *verdict.Advice) string {
	text := a.Text
	if a.Line.Function != "" {
		front, back := frames.Parts(&a.Line)
		text = words(front, back) + ": " + text
	}
	if a.Evidence != "" {
		text += " (" + a.Evidence + ")"
	}
	return untrusted.Clean(text)
}

// Advice is what to do about what grows, a sentence each, with the evidence.
func Advice(s *ledger.Snapshot, st callstack.Stacks) []string {
	return judge(s, st).advice
}

// Leaking counts the lines of which the verdict is that they leak.
func Leaking(s *ledger.Snapshot, st callstack.Stacks) (n int) {
	for _, g := range judge(s, st).groups {
		if g.Class == verdict.Leaking {
			n++
		}
	}
	return n
}

// verdictPart writes the lines that grow, the worst first, with what shows it, and advice.
func verdictPart(p *page, s *ledger.Snapshot, j judged, top int) {
	var growing []verdict.Group
	others := map[verdict.Class]uint64{}
	for _, g := range j.groups {
		if g.Class >= verdict.Growing {
			growing = append(growing, g)
		} else {
			others[g.Class]++
		}
	}
	if len(j.groups) == 0 {
		return
	}
	p.line(plain, 0, "")
	switch leaking := countClass(growing, verdict.Leaking); {
	case leaking > 0:
		p.text(red, 0, "Leaking: "+counted(uint64(leaking), "line"))
	case len(growing) > 0:
		p.text(bold, 0, "No line leaks for certain; growing: "+counted(uint64(len(growing)), "line"))
	default:
		p.text(bold, 0, "No line grows: "+classCounts(others))
		return
	}
	for _, text := range fullTexts(s, growing) {
		p.paragraph("", text)
	}
	for i := range growing[:min(len(growing), top)] {
		verdictLine(p, s, i+1, &growing[i])
	}
	if more := len(growing) - top; more > 0 {
		p.text(plain, siteIndent, counted(uint64(more), "line")+" more (-T shows them)")
	}
	if len(others) > 0 {
		p.line(plain, 0, "")
		p.paragraph("", "Other lines: "+classCounts(others))
	}
	for _, a := range j.advice {
		p.line(plain, 0, "")
		p.paragraph("→ ", a)
	}
}

func countClass(list []verdict.Group, class verdict.Class) (n int) {
	for i := range list {
		if list[i].Class == class {
			n++
		}
	}
	return n
}

// classCounts is "12 steady, 2 cache, 1 one-off".
func classCounts(counts map[verdict.Class]uint64) string {
	var parts []string
	for _, class := range []verdict.Class{verdict.Steady, verdict.Cache, verdict.OneOff} {
		if n := counts[class]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(parts, ", ")
}

// fullTexts says of each GPU when it is full at the rate of all that leaks there.
func fullTexts(s *ledger.Snapshot, list []verdict.Group) (texts []string) {
	type place struct {
		process int
		device  int32
	}
	rate, room := map[place]float64{}, map[place]float64{}
	var order []place
	for i := range list {
		g := &list[i]
		if g.UntilFull <= 0 {
			continue
		}
		at := place{g.Process, g.Device}
		if rate[at] == 0 {
			order = append(order, at)
		}
		rate[at] += g.Rate.Value
		room[at] = g.Rate.Value * g.UntilFull.Seconds()
	}
	for _, at := range order {
		texts = append(texts, fmt.Sprintf("%s of %s is full in %s: it grows by %s/min in all", DeviceName(at.device, ledger.Device),
			processName(&s.Processes[at.process]), span(uint64(room[at]/rate[at]*1e9)), BytesText(uint64(rate[at]*60))))
	}
	return texts
}

func verdictLine(p *page, s *ledger.Snapshot, rank int, g *verdict.Group) {
	style := plain
	if g.Class == verdict.Leaking {
		style = bold
	}
	p.line(plain, 0, "")
	p.headLine(style, pad(fmt.Sprintf("%d.", rank), siteIndent)+pad(g.Class.String(), 8), g.Line)
	p.paragraph(strings.Repeat(" ", siteIndent), untrusted.Clean(g.Evidence))
	amount := BytesText(g.LiveBytes) + " in " + counted(g.LiveObjects, noun(g.Kind))
	p.list(plain, siteIndent, ", ", amount, g.Object, processName(&s.Processes[g.Process]), whereText(g.Device, g.Kind))
}

// VerdictReport is what is to be said of a line of code.
type VerdictReport struct {
	Class       string      `json:"class"` // leaking, growing, cache, steady, one-off
	Score       float64     `json:"score"` // 0 to 1: chance that the next window of time leaves survivors too
	Rate        float64     `json:"bytes_per_second"`
	RateLow     float64     `json:"bytes_per_second_low"` // 95 % interval
	RateHigh    float64     `json:"bytes_per_second_high"`
	UntilFullNS uint64      `json:"until_full_ns,omitempty"`
	Evidence    string      `json:"evidence"`
	Object      string      `json:"object,omitempty"`
	Process     int         `json:"process"` // index into processes
	PID         uint32      `json:"pid"`
	Device      string      `json:"device"`
	Kind        string      `json:"kind"`
	LiveBytes   uint64      `json:"live_bytes"`
	LiveCount   uint64      `json:"live_count"`
	Line        FrameReport `json:"line"`
}

func verdictReports(s *ledger.Snapshot, j judged) (list []VerdictReport, advice []string) {
	list, advice = []VerdictReport{}, []string{}
	for i := range j.groups {
		g := &j.groups[i]
		list = append(list, VerdictReport{
			Class: g.Class.String(), Score: g.Score, Rate: g.Rate.Value, RateLow: g.Rate.Low, RateHigh: g.Rate.High, UntilFullNS: uint64(max(g.UntilFull, 0)),
			Evidence: untrusted.Clean(g.Evidence), Object: g.Object, Process: g.Process, PID: s.Processes[g.Process].PID,
			Device: DeviceName(g.Device, g.Kind), Kind: KindName(g.Kind), LiveBytes: g.LiveBytes, LiveCount: g.LiveObjects,
			Line: stackReport([]callstack.Frame{g.Line})[0],
		})
	}
	return list, append(advice, j.advice...)
}
