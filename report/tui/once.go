// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/ranks"
)

// maxOnce is how many lines of code Once writes.
const maxOnce = 15

// Once writes one screen as text without control sequences, in lines of at most width columns: the
// GPUs, all processes, the largest lines of code, what happened and what the figures leave open.
func Once(w io.Writer, x Moment, o Options, width int) error {
	m := New(o)
	m.palette, m.width, m.height = nil, max(width, 20), 1<<12
	b := m.feed.reader.read(x)
	m.take(b)
	all := m.scene()
	list := []string{strings.TrimSpace(m.titleLine(m.width)), ""}
	bars := false
	for i := range b.gpus {
		line, hasBar := all.gpuBar(&b.gpus[i])
		bars = bars || hasBar
		list = append(list, line)
	}
	if bars {
		list = append(list, all.p.legend(nil, m.width)...)
	}
	for i := range b.gpus {
		if g := &b.gpus[i]; g.beyond > 0 {
			list = append(list, wrap("", "GPU "+g.label+": "+format.Bytes(g.beyond)+" "+report.BeyondNVML+", in no sum", m.width)...)
		}
	}
	if len(b.gpus) > 0 {
		list = append(list, "")
	}
	list = append(list, onceProcesses(&m.views.processes, all)...)
	list = append(list, onceLines(all, &o)...)
	for i, h := range m.chronicle.list {
		if i == 0 {
			list = append(list, "")
		}
		list = append(list, wrap("", format.Join(h.clock, h.text), m.width)...)
	}
	if len(b.doubts) > 0 {
		list = append(list, "")
	}
	for _, text := range b.doubts {
		list = append(list, wrap("! ", text, m.width)...)
	}
	for i := range list {
		list[i] = strings.TrimRight(list[i], " ") + "\n"
	}
	if _, err := io.WriteString(w, strings.Join(list, "")); err != nil {
		return fmt.Errorf("write screen: %w", err)
	}
	return nil
}

func onceProcesses(v *processView, x *scene) []string {
	if rowsOf(v, x) == 0 {
		return append([]string{"No traced process uses CUDA"}, othersOf(x, x.size.height, true)...)
	}
	return slices.Concat(tableOf(processColumns(x.b), v.rows, v.by, x), sharersOf(x, x.size.height, true), othersOf(x, x.size.height, true))
}

func onceLines(x *scene, o *Options) []string {
	flat := newViews(&Options{Flat: true, Sort: o.Sort})
	v := &flat.lines
	v.jobs = ranks.New(x.b.Snapshot)
	n := rowsOf(v, x)
	if n == 0 {
		return nil
	}
	list := append([]string{""}, tableOf(v.columns(x), v.rows[:min(n, maxOnce)], v.by, x)...)
	if n > maxOnce {
		list = append(list, format.Cut(format.Count(uint64(n-maxOnce), "more line"), x.size.width))
	}
	return list
}

// tableOf draws a header and rows without a cursor.
func tableOf[R any](columns []column[R], rows []R, by string, x *scene) []string {
	columns = fit(columns, x.size.width)
	list := []string{header(columns, x.p, by, false, x.size.width)}
	for i := range rows {
		list = append(list, row(columns, x.p, &rows[i], false, x.size.width))
	}
	return list
}
