// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// series is a line of the chart of one process and GPU.
type series struct {
	name   string
	of     func(*timeline.Row) []uint64
	values []uint64
}

func chartSeries(r *timeline.Row) []series {
	list := []series{
		{name: "usage", of: func(r *timeline.Row) []uint64 { return r.Usage }},
		{name: report.PlaneName(report.PlaneTensor), of: func(r *timeline.Row) []uint64 { return r.Tensors }},
		{name: report.PlaneName(report.PlaneCache), of: func(r *timeline.Row) []uint64 { return r.Cached }},
		{name: report.PlaneName(report.PlaneDriver), of: func(r *timeline.Row) []uint64 { return r.Driver }},
		{name: report.PlaneName(report.PlaneRounding), of: func(r *timeline.Row) []uint64 { return r.Rounding }},
		{name: report.PlaneName(report.PlaneBefore), of: func(r *timeline.Row) []uint64 { return r.Before }},
		{name: "host, pinned", of: func(r *timeline.Row) []uint64 { return r.Host }},
		{name: "managed", of: func(r *timeline.Row) []uint64 { return r.Managed }},
		{name: "system", of: func(r *timeline.Row) []uint64 { return r.System }},
		{name: "asleep", of: func(r *timeline.Row) []uint64 { return r.Asleep }},
	}
	kept := list[:0]
	for _, x := range list {
		x.values = x.of(r)
		if peak, _ := peakOf(x.values); peak > 0 {
			kept = append(kept, x)
		}
	}
	return kept
}

// peakOf returns the highest value and its first index.
func peakOf(values []uint64) (peak uint64, at int) {
	for i, v := range values {
		if v > peak {
			peak, at = v, i
		}
	}
	return peak, at
}

const chartNames, chartFigures, chartLeast = 15, 30, 12 // columns of names and of figures; least columns of a chart beside them

const leastName = 10 // least columns of a name beside its figures

// WriteTimeline writes the memory of each process and GPU over time, one line per plane, each
// with a scale of its own, and then events such as out-of-memory errors.
func WriteTimeline(w io.Writer, s *ledger.Snapshot, t *timeline.Timeline, st callstack.Stacks, o report.Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	viewTitle(p, s, n, o)
	left := timeline.Left(s)
	for i := range t.Rows {
		chartRow(p, s, t, &t.Rows[i], endOf(t, &t.Rows[i], left), i == 0)
	}
	if len(t.Rows) == 0 {
		p.line(plain, 0, "")
		p.text(bold, 0, "No process held memory")
	}
	marks(p, s, t, st, o)
	footnotes(p, n)
	return p.writeTo(w)
}

// since returns the time between the begin of the session and another moment.
func since(s *ledger.Snapshot, time uint64) string { return format.Span(report.Minus(time, s.Begin)) }

// endOf returns the row that has what a row had at its end: at that of its process, if it has
// ended.
func endOf(t *timeline.Timeline, r *timeline.Row, left *timeline.Timeline) *timeline.Row {
	p := &t.Processes[r.Process]
	if p.End == 0 {
		return r
	}
	for i := range left.Rows {
		x := &left.Rows[i]
		if q := &left.Processes[x.Process]; q.PID == p.PID && q.Begin == p.Begin && x.UUID == r.UUID && (x.UUID != "" || x.Device == r.Device) {
			return x
		}
	}
	return r
}

func chartRow(p *page, s *ledger.Snapshot, t *timeline.Timeline, r, last *timeline.Row, first bool) {
	at := format.Device(r.Device, ledger.Device)
	if r.Device < 0 && r.UUID == "" {
		at = "host"
	}
	p.line(plain, 0, "")
	process := &t.Processes[r.Process]
	ended := ""
	if process.End != 0 {
		ended = "ended at " + since(s, process.End)
	}
	p.list(bold, 0, ", ", format.Process(process)+rankText(process)+" on "+format.Join(at, format.ShortUUID(untrusted.Clean(r.UUID))), ended)
	list := chartSeries(r)
	names, room := chartNames, p.width-chartNames-chartFigures
	narrow := room < chartLeast
	if narrow { // the chart has a line of its own
		names, room = p.width-chartFigures, 0
	}
	columned := names >= leastName
	if first && columned {
		p.line(dim, 0, format.Pad("", names+room)+format.Pad("peak", -10)+format.Pad("at", -9)+format.Pad("end", -11))
	}
	for _, x := range list {
		peak, k := peakOf(x.values)
		end := format.Bytes(0) // of a plane without values
		if values := x.of(last); len(values) > 0 {
			end = format.Bytes(values[len(values)-1])
		}
		if !columned {
			p.list(plain, 0, ", ", x.name+": peak "+format.Bytes(peak)+" at "+since(s, t.Times[k]), "end "+end)
			p.line(plain, 0, bars(t.Times, x.values, p.width, peak))
			continue
		}
		figures := format.Pad(format.Bytes(peak), -10) + format.Pad(since(s, t.Times[k]), -9) + format.Pad(end, -11)
		name := format.Pad(format.Cut(x.name, names-1), names)
		if narrow {
			p.line(plain, 0, name+figures)
			p.line(plain, 0, bars(t.Times, x.values, p.width, peak))
			continue
		}
		p.line(plain, 0, name+bars(t.Times, x.values, room, peak)+figures)
	}
	if narrow {
		names, room = 0, p.width
	}
	from := "0s"
	if t.Times[0] > s.Begin {
		from = since(s, t.Times[0])
	}
	p.line(dim, 0, format.Pad("", names)+format.Pad(from, room/2)+format.Pad(since(s, t.Times[len(t.Times)-1]), -(room-room/2)))
}

// bars draws the highest value in each column's time, or else the last one before it. Values above
// 0 are always visible.
func bars(times, values []uint64, columns int, scale uint64) string {
	steps := []rune(" ▁▂▃▄▅▆▇█")
	out := make([]rune, columns)
	length, at := float64(times[len(times)-1]-times[0])+1, 0
	for c := range out {
		from := at
		for at < len(times) && int(float64(times[at]-times[0])/length*float64(columns)) <= c {
			at++
		}
		if from == at { // no moment falls into this column
			from = max(at, 1) - 1
		}
		high, _ := peakOf(values[from:max(at, 1)])
		k := int(float64(high)/float64(max(scale, 1))*float64(len(steps)-1) + 0.5)
		if high > 0 {
			k = max(k, 1)
		}
		out[c] = steps[k]
	}
	return string(out)
}

func marks(p *page, s *ledger.Snapshot, t *timeline.Timeline, st callstack.Stacks, o report.Options) {
	var list []timeline.Mark
	for _, m := range t.Marks {
		if m.Kind == timeline.OutOfMemory || m.Kind == timeline.Large {
			list = append(list, m)
		}
	}
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "What happened")
	for i := range list[:min(len(list), o.Limit())] {
		m := &list[i]
		stack := frames.Visible(st, m.Stack, m.API)
		what, style := "allocated", plain
		if m.Kind == timeline.OutOfMemory {
			what, style = "out of memory", red
		}
		p.headLine(style, format.Pad(since(s, m.Time), -9)+" "+format.Pad(what, 14)+format.Pad(format.Bytes(m.Size), -9), stack[frames.Headline(stack)])
	}
	if len(list) > o.Limit() {
		p.text(dim, 0, fmt.Sprintf("%s (-T shows more)", format.Count(uint64(len(list)-o.Limit()), "more event")))
	}
}

const stepNames, stepFigures, leastCurve = 10, 22, 24 // columns beside the curves, and their least

// stepsOf returns the steps of a process; nil without any.
func stepsOf(s *ledger.Snapshot, process int, o report.Options) *steps.Steps {
	p := &s.Processes[process]
	return o.Steps.Of(p.PID, p.Begin, p.End)
}

// stepPart writes the steps of a process on a device: how they are known, where the peak lies,
// memory by step, and the step of the peak, or of the moment shown, as a curve with its phases.
func (p *page) stepPart(s *ledger.Snapshot, x *steps.Steps, device int32, title string) {
	if x == nil {
		return
	}
	k := x.Index(device)
	p.line(plain, 0, "")
	p.text(bold, 0, title+": "+x.Text())
	if k < 0 {
		return
	}
	peak, bytes, ok := x.Peak(k)
	if ok {
		p.paragraph("  ", "peak of tensors: "+format.Bytes(bytes)+" "+x.PlaceText(peak))
	}
	now, here := x.At(s.End)
	if here {
		p.paragraph("  ", "this moment: "+x.PlaceText(now))
	}
	if grows := x.Growth(k).Text(); grows != "" {
		p.paragraph("  ", "tensors grow: "+grows)
	}
	p.byStep(x, k)
	if ok && peak.Detail != nil {
		p.oneStep(peak, k)
	}
	if earlier := s.End < x.To; earlier && here && now.Detail != nil && (!ok || now.Detail != peak.Detail || now.Between != peak.Between) {
		p.oneStep(now, k)
	}
}

// stepLine is stepPart in one line.
func (p *page) stepLine(s *ledger.Snapshot, b *purpose.Balance, o report.Options) {
	if x := stepsOf(s, b.Process, o); x != nil {
		p.paragraph("", "Steps: "+x.OnDevice(b.Device))
	}
}

// leakSteps is stepLine of at most so many processes, on the GPUs on which their tensors had most.
func (p *page) leakSteps(s *ledger.Snapshot, o report.Options, most int) {
	shown, more := 0, uint64(0)
	for i := range s.Processes {
		x := stepsOf(s, i, o)
		switch {
		case x == nil:
		case shown == most:
			more++
		default:
			shown++
			p.paragraph("", "Steps of "+format.Process(&s.Processes[i])+": "+x.OnDevice(x.Main()))
		}
	}
	if more > 0 {
		p.text(plain, 2, format.Count(more, "more process")+" with steps")
	}
}

// otherSteps writes the steps of processes that hold no memory at the moment, or why no steps are
// known.
func (p *page) otherSteps(s *ledger.Snapshot, list []purpose.Balance, o report.Options) {
	for i := range s.Processes {
		shown := slices.ContainsFunc(list, func(b purpose.Balance) bool { return b.Process == i })
		if x := stepsOf(s, i, o); x != nil && !shown {
			p.stepPart(s, x, x.Main(), "Steps of "+format.Process(&s.Processes[i]))
		}
	}
	if text := o.Steps.SkippedText(); text != "" {
		p.paragraph("! ", text)
	}
}

// processSteps is stepLine of a process that has ended, on the GPU on which its tensors had most.
func (p *page) processSteps(s *ledger.Snapshot, process int, o report.Options) {
	if x := stepsOf(s, process, o); x != nil {
		p.stepLine(s, &purpose.Balance{Process: process, Device: x.Main()}, o)
	}
}

// byStep writes the most that each step had.
func (p *page) byStep(x *steps.Steps, k int) {
	numbers, highs := x.Highs(k)
	if len(numbers) < 2 {
		return
	}
	p.curve("by step", numbers, highs)
}

// curveRoom returns the columns of a curve.
func (p *page) curveRoom() int {
	if room := p.width - stepNames - stepFigures; room >= leastCurve {
		return room
	}
	return p.width
}

// curve writes a name, values over time and their range: the curve has a line of its own where
// there is no room. It is scaled from the lowest value on, which is far above 0 where weights
// stay, unless all are nearly the same.
func (p *page) curve(name string, times, values []uint64) {
	least, most := slices.Min(values), slices.Max(values)
	figure := format.Bytes(most)
	if from := format.Bytes(least); from != figure {
		figure = from + " to " + figure
	}
	base := min(least, most-most/20)
	above := make([]uint64, len(values))
	for i, v := range values {
		above[i] = v - base + 1
	}
	curve := bars(times, above, p.curveRoom(), most-base+1)
	if p.curveRoom() == p.width {
		p.pair(plain, name, figure)
		p.line(plain, 0, curve)
		return
	}
	p.line(plain, 0, format.Pad(name, stepNames)+curve+format.Pad(format.Cut(figure, stepFigures-1), -stepFigures))
}

// oneStep writes a step as a curve, its phases below it, and what each phase had.
func (p *page) oneStep(at steps.Place, k int) {
	d := at.Detail
	if at.Between {
		d = d.Between()
	}
	points := d.Curve(k)
	from, to := d.Span()
	if len(points) < 2 || to <= from {
		return
	}
	times, values := []uint64{from}, []uint64{points[0].Bytes}
	for _, v := range points {
		times, values = append(times, v.Time), append(values, v.Bytes)
	}
	times, values = append(times, to), append(values, values[len(values)-1])
	room := p.curveRoom()
	p.line(plain, 0, "")
	p.curve(at.Name(), times, values)
	letters := make([]byte, room)
	for c := range letters {
		letters[c] = steps.Letter(d.PhaseAt(from + uint64((float64(c)+0.5)/float64(room)*float64(to-from))))
	}
	names := ""
	if room < p.width {
		names = format.Pad("", stepNames)
	}
	p.line(dim, 0, names+string(letters))
	column := p.phaseColumn()
	whole := "  " + format.Span(to-from) + " in all"
	if format.Width(whole) >= column {
		whole = ""
	}
	p.line(dim, 0, format.Pad(whole, column)+format.Pad("time", -8)+format.Pad("at most", -10)+format.Pad("change", -11))
	for _, part := range d.Parts(k) {
		p.phaseRow(&part, part.Phase == at.Phase)
	}
}

// phaseColumn returns the columns of the names of phases.
func (p *page) phaseColumn() int { return min(nameColumn, p.width-29) }

// phaseRow writes "> B backward          36ms   160 MiB  -109 MiB": its time, the most in it, and
// what it changes.
func (p *page) phaseRow(x *steps.Part, here bool) {
	column := p.phaseColumn()
	mark := "  "
	if here {
		mark = "> "
	}
	name := mark + string(steps.Letter(x.Phase)) + " " + steps.PhaseText(x.Phase)
	p.line(plain, 0, format.Pad(format.Cut(name, column-1), column)+format.Pad(format.Span(x.Time), -8)+format.Pad(format.Bytes(x.High), -10)+format.Pad(format.Difference(x.Change), -11))
}

// evidenceText returns the evidence of a verdict, before it "+12.0 MiB a step" where that is known.
func evidenceText(s *ledger.Snapshot, g *verdict.Group, o report.Options) string {
	text := untrusted.Clean(g.Evidence)
	if x := stepsOf(s, g.Process, o); x != nil {
		if rate := x.PerStep(g.PerSecond()).Text(); rate != "" {
			return "grows " + rate + ", " + text
		}
	}
	return text
}
