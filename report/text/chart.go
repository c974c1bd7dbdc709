// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/timeline"
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

// lastOf returns the value at the end, 0 of a plane without values.
func lastOf(values []uint64) uint64 {
	if len(values) == 0 {
		return 0
	}
	return values[len(values)-1]
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

// endOf returns the row that has what a row had at its end: at that of its process, if it has ended.
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
		end := format.Bytes(lastOf(x.of(last)))
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
