// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// trackRow is one row of the timeline: a GPU, a process on a GPU, or one plane of it.
type trackRow struct {
	key     trackKey
	label   string
	values  *values
	now     int64
	process ledger.ProcessID // the zero value: of a GPU
	style   style
	note    string // beside the value of now: "rank 3"
}

type trackKey struct {
	row   rowKey
	gpu   bool
	plane int // planeCount: all
}

// timelineView is the view of memory over time.
type timelineView struct{ table[trackRow] }

// fill lists the GPUs and processes, or the planes of the chosen process.
func (v *timelineView) fill(x *scene) {
	v.rows = v.rows[:0]
	b := x.b
	if !x.ofOne() {
		for i := range b.gpus {
			g := &b.gpus[i]
			label := "GPU " + g.label
			if t := x.series.gpus[g.key]; t != nil && x.filter.passes(label, g.model) {
				v.rows = append(v.rows, trackRow{key: trackKey{rowKey{gpu: g.key}, true, planeCount}, label: label, values: &t.all, now: int64(g.used), style: bold})
			}
		}
	}
	rows := sortRows(b.processes, processColumns(b), "live", false)
	for i := range rows {
		p := &rows[i]
		t := x.series.rows[p.key]
		if t == nil || x.ofOne() && p.key.process != x.process {
			continue
		}
		if x.ofOne() {
			v.addPlanes(x, p, t)
		} else if x.filter.passes(p.command, p.pid, p.user, p.job) {
			v.rows = append(v.rows, trackRow{trackKey{p.key, false, planeCount}, processName(b, p.index, trackNames-1), &t.all, p.live, p.key.process, plain, p.rank})
		}
	}
}

func (v *timelineView) addPlanes(x *scene, p *process, t *track) {
	on := ""
	if p.gpu >= 0 && len(x.b.gpus) > 1 {
		on = " GPU " + x.b.gpuLabel(p.gpu)
	}
	v.rows = append(v.rows, trackRow{trackKey{p.key, false, planeCount}, "all" + on, &t.all, p.live, p.key.process, bold, p.rank})
	for k := range planes {
		if k == hostPlane {
			on = ""
		}
		if y := &t.planes[k]; y.peak > 0 {
			v.rows = append(v.rows, trackRow{trackKey{p.key, false, k}, planes[k].short + on, y, p.planes[k], p.key.process, planes[k].style, ""})
		}
	}
}

func (v *timelineView) key(_ *scene, i int) any { return v.rows[i].key }

func (*timelineView) names(*scene) []string { return nil } // it has no columns

func (*timelineView) about(x *scene) []string {
	if text := x.processText(); text != "" {
		return []string{text}
	}
	return nil
}

func (*timelineView) keys() []key.Binding { return nil }

// open returns the lines of the process.
func (v *timelineView) open(x *scene) (target, bool) {
	rowsOf(v, x)
	t := v.atCursor()
	if t == nil || t.process == (ledger.ProcessID{}) {
		return target{}, false
	}
	return target{view: viewLines, choice: choice{t.process, x.gpu}}, true
}

const (
	trackNames  = 19   // columns of names and of the value of now
	trackScale  = 10   // columns of the scale
	leastTrack  = 8    // columns
	mostTrack   = 6    // lines of one row
	leastPeriod = 60e9 // ns that the chart shows at least
)

// chart is where the rows of a timeline are drawn.
type chart struct {
	names, columns, lines int
	from, to              uint64 // ns
	times                 []uint64
}

func (v *timelineView) draw(x *scene) []string {
	n := rowsOf(v, x)
	if n == 0 {
		return []string{"", x.nothing("no memory was seen yet")}
	}
	height := x.size.bodyHeight()
	c := newChart(x)
	news := x.newsLines(min(len(x.chronicle.list)-1, (height-2*n-1)/3))
	room := height - 1 - len(news)
	empty := 0 // rows that never held anything: one line is enough
	for i := range v.rows {
		empty += btoi(v.rows[i].values.peak <= 0)
	}
	c.lines = max(1, min((room-empty)/max(n-empty, 1), mostTrack))
	at := &v.cursor
	visible := n
	if c.lines == 1 {
		visible = max(room, 1)
	}
	at.show(n, visible)
	var list []string
	for i := at.from; i < min(n, at.from+visible); i++ {
		list = append(list, x.drawTrack(c, &v.rows[i], i == at.at)...)
	}
	list = append(list[:min(len(list), max(room, 0))], x.axis(&c))
	return append(list, news...)
}

func newChart(x *scene) chart {
	c, width := chart{names: trackNames, times: x.series.times, to: x.b.Snapshot.End}, x.size.width
	if c.columns = width - c.names - trackScale; c.columns < leastTrack {
		c.names = max(0, width-trackScale-leastTrack)
		c.columns = max(width-c.names-trackScale, 1)
	}
	for len(c.times) > 0 && c.times[len(c.times)-1] > c.to { // frozen
		c.times = c.times[:len(c.times)-1]
	}
	c.from = c.to
	if len(c.times) > 0 {
		c.from = c.times[0]
	}
	if c.to-c.from < leastPeriod {
		c.from = c.to - min(c.to, leastPeriod)
	}
	return c
}

// dot returns the column of dots of a time, two in a cell.
func (c *chart) dot(time uint64) int {
	if time <= c.from {
		return 0
	}
	dots := 2 * c.columns
	return min(int(float64(time-c.from)/float64(c.to-c.from)*float64(dots-1)+0.5), dots-1)
}

// heights returns the highest value at each column of dots, -1 before the first.
func (c *chart) heights(v *values) []int64 {
	out := make([]int64, 2*c.columns)
	for i := range out {
		out[i] = -1
	}
	for i, time := range c.times {
		x := c.dot(time)
		out[x] = max(out[x], v.at(i))
	}
	for i := 1; i < len(out); i++ {
		if out[i] < 0 {
			out[i] = out[i-1]
		}
	}
	return out
}

var brailleDots = [2][4]rune{{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}} // from the bottom up

// drawTrack draws one row: name, chart and scale. Its top line has the marks.
func (x *scene) drawTrack(c chart, t *trackRow, at bool) []string {
	if t.values.peak <= 0 {
		c.lines = 1
	}
	heights := c.heights(t.values)
	bottom, top := scaleOf(heights, c.lines)
	cells := make([][]rune, c.lines)
	for i := range cells {
		cells[i] = slices.Repeat([]rune{' '}, c.columns)
	}
	steps := 4 * c.lines
	for d, h := range heights {
		n := int(float64(max(h-bottom, 0))/float64(top-bottom)*float64(steps) + 0.5)
		if h > 0 {
			n = max(n, 1)
		}
		for k := range n {
			cell := &cells[c.lines-1-k/4][d/2]
			if *cell == ' ' {
				*cell = 0x2800
			}
			*cell |= brailleDots[d%2][k%4]
		}
	}
	marks := x.marksOf(&c, t)
	list := make([]string, c.lines)
	for i := range list {
		name, side := "", ""
		switch {
		case i == 0:
			name, side = t.label, format.SignedBytes(top)
			if t.values.peak <= 0 {
				side = ""
			}
		case i == 1:
			name = format.Cut(format.Join(" "+format.SignedBytes(t.now), t.note), max(c.names-1, 0))
		}
		if i == c.lines-1 && i > 0 {
			side = format.SignedBytes(bottom)
		}
		name = cell(name, c.names, true)
		switch {
		case at && i == 0:
			name = x.p.paint(chosen, name)
		case i == 0:
			name = x.p.paint(bold, name)
		default:
			name = x.p.paint(dim, name)
		}
		var b painted
		b.p = x.p
		for k, r := range cells[i] {
			if mark, ok := marks[k]; ok && i == 0 {
				b.rune(mark.style, mark.sign)
			} else {
				b.rune(trackStyle(t), r)
			}
		}
		b.end()
		list[i] = name + b.String() + x.p.paint(dim, strings.TrimRight(cell(" "+side, trackScale, true), " "))
	}
	return list
}

// scaleOf returns the values at the bottom and the top of a chart. The bottom is 0, unless the
// values change so little that nobody would see it: then it is higher, and stands beside the chart.
func scaleOf(heights []int64, lines int) (bottom, top int64) {
	low := int64(-1)
	for _, h := range heights {
		top = max(top, h)
		if h >= 0 && (low < 0 || h < low) {
			low = h
		}
	}
	if lines > 1 && low >= 0 && top > low {
		bottom = max(0, top-zoom*(top-low))
	}
	return bottom, max(top, 1)
}

// zoom is the least share of a chart's height that changes take: a third.
const zoom = 3

func trackStyle(x *trackRow) style {
	if x.style == bold || x.style == plain {
		return styleTensor
	}
	return x.style
}

// marksOf returns what happened to a row, by column. The worst of a column stays.
func (x *scene) marksOf(c *chart, t *trackRow) map[int]happening {
	marks := map[int]happening{}
	for _, h := range x.chronicle.list {
		if h.sign == 0 || h.time < c.from || h.time > c.to || !x.concerns(&h, t) {
			continue
		}
		k := c.dot(h.time) / 2
		if old, ok := marks[k]; !ok || old.sign != signOOM {
			marks[k] = h
		}
	}
	return marks
}

// concerns reports whether something happened to the process of a row, or to one on its GPU.
func (x *scene) concerns(h *happening, t *trackRow) bool {
	if t.key.gpu {
		return h.sign != signEnd && x.series.rows[rowKey{h.process, t.key.row.gpu}] != nil
	}
	return h.process == t.process && (t.key.plane == planeCount || h.sign != signEnd)
}

// axis returns "-1m40s … now" below the charts, with what the marks mean.
func (x *scene) axis(c *chart) string {
	from, to := "-"+format.Span(c.to-c.from), "now"
	key := string(signOOM) + " out of memory  " + string(signLeak) + " leak  " + string(signEnd) + " ended"
	middle := c.columns - format.Width(from) - len(to)
	if format.Width(key)+2 > middle {
		key = ""
	}
	line := indent(c.names) + from + format.Pad(centered(key, middle), max(middle, 0)) + to
	return x.p.paint(dim, format.Cut(line, x.size.width))
}

func centered(text string, width int) string {
	return indent((width-format.Width(text))/2) + text
}

// newsLines returns what happened before what stands at the bottom of the screen.
func (x *scene) newsLines(n int) []string {
	var list []string
	last := len(x.chronicle.list) - 1
	for _, h := range x.chronicle.list[max(0, last-max(n, 0)):max(last, 0)] {
		list = append(list, x.p.paint(h.style, format.Cut(format.Join(h.clock, h.text), x.size.width)))
	}
	return list
}
