// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// gpuPeak is the peak of one process on one GPU.
type gpuPeak struct {
	process      int
	at           string // the GPU's UUID, or "device 0"
	usage, bytes uint64
	lines        map[Line]uint64
}

// of measures a capture: each process that ended at its own peak, which is exact, any other at the
// end.
func (m Measuring) of(r *capture.Reader) (*Measurement, error) {
	s, err := r.Snapshot(r.End())
	if err != nil {
		return nil, err
	}
	return m.measure(s, frames.Mine(r, m.Mine)), nil
}

func (m Measuring) measure(s *ledger.Snapshot, st callstack.Stacks) *Measurement {
	sources := newSources(m.Folder)
	x := &Measurement{Runs: 1, Lost: s.Stats.Lost}
	var peaks []gpuPeak
	for i := range s.Processes {
		books, process := s, i
		if p := s.PeakOf(i); p != nil {
			books, process = p.Books, 0
		} else if s.Processes[i].End == 0 {
			x.Running++
		}
		list := peaksOf(books, process, st, sources)
		for k := range list {
			list[k].process = i
		}
		if len(list) > 0 {
			x.Processes++
			if !slices.ContainsFunc(s.Balances, func(b ledger.Balance) bool { return b.Process == i }) {
				x.Unread++
			}
		}
		peaks = append(peaks, list...)
	}
	parts := s.Parts()
	for i := range parts {
		for k := range peaks {
			if p := &peaks[k]; p.process == parts[i].Process && p.at == parts[i].UUID {
				p.usage = max(p.usage, report.UsagePeak(s, &parts[i]))
			}
		}
	}
	for i := range s.Tensors {
		x.Error = max(x.Error, s.Tensors[i].Error)
	}
	x.highest(s, peaks)
	return x
}

// peaksOf returns what a process of books held on each GPU.
func peaksOf(books *ledger.Snapshot, process int, st callstack.Stacks, sources *sources) (list []gpuPeak) {
	at := map[string]int{}
	for _, h := range report.Holdings(books) {
		if h.Process != process || h.Apart() || h.Live <= 0 || h.Plane == report.PlaneImported {
			continue
		}
		gpu := cmp.Or(h.UUID, fmt.Sprint("device ", h.Device))
		i, ok := at[gpu]
		if !ok {
			i = len(list)
			at[gpu] = i
			list = append(list, gpuPeak{at: gpu, lines: map[Line]uint64{}})
		}
		p := &list[i]
		p.usage += uint64(h.Live)
		if !isTraced(h.Plane) {
			continue
		}
		p.bytes += uint64(h.Live)
		f := callstack.Frame{Function: h.Mark, Mark: true}
		if h.Mark == "" {
			stack := frames.Visible(st, h.Site.Stack, h.Site.API)
			f = stack[frames.Headline(stack)]
		}
		p.lines[sources.line(&f)] += uint64(h.Live)
	}
	return list
}

// isTraced reports whether events told of all memory of a plane: what NVML alone reports depends on
// when it was asked.
func isTraced(plane string) bool {
	return plane == report.PlaneTensor || plane == report.PlaneCache || plane == report.PlaneDriver
}

// highest finds the GPU and the moment at which processes that ran together had most, each at its
// own peak: at most so much, and of one process exactly so much.
func (x *Measurement) highest(s *ledger.Snapshot, peaks []gpuPeak) {
	together := func(a, b int) bool { // a ran when b began
		p, q := &s.Processes[a], &s.Processes[b]
		return p.Begin <= q.Begin && (p.End == 0 || p.End > q.Begin)
	}
	var most []gpuPeak
	for i := range peaks {
		var list []gpuPeak
		var bytes, usage uint64
		for k := range peaks {
			if peaks[k].at == peaks[i].at && (k == i || together(peaks[k].process, peaks[i].process)) {
				list = append(list, peaks[k])
				bytes += peaks[k].bytes
				usage += peaks[k].usage
			}
		}
		x.Least = max(x.Least, peaks[i].usage)
		x.Usage = max(x.Usage, usage)
		if most == nil || bytes > x.Peak {
			x.Peak, most = bytes, list
		}
	}
	sums := map[Line]uint64{}
	for i := range most {
		for line, bytes := range most[i].lines {
			sums[line] += bytes
		}
	}
	for line, bytes := range sums {
		line.Bytes = bytes
		x.Lines = append(x.Lines, line)
	}
	sortLines(x.Lines)
}

func sortLines(list []Line) {
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Function, b.Function), cmp.Compare(a.Text, b.Text))
	})
}

// combine returns the median of several runs, and how far they differ.
func combine(runs []*Measurement) *Measurement {
	c := *runs[0]
	c.Runs = len(runs)
	if len(runs) == 1 {
		return &c
	}
	var peaks []uint64
	by := map[Line][]uint64{}
	for i, r := range runs {
		peaks = append(peaks, r.Peak)
		c.Usage, c.Least, c.Error, c.Lost = max(c.Usage, r.Usage), max(c.Least, r.Least), max(c.Error, r.Error), max(c.Lost, r.Lost)
		c.Processes, c.Running, c.Unread = max(c.Processes, r.Processes), max(c.Running, r.Running), max(c.Unread, r.Unread)
		for _, line := range r.Lines {
			bytes := line.Bytes
			line.Bytes = 0
			if by[line] == nil {
				by[line] = make([]uint64, len(runs))
			}
			by[line][i] += bytes
		}
	}
	c.Peak, c.Noise = spread(peaks)
	c.Lines = nil
	for line, list := range by {
		line.Bytes, line.Noise = spread(list)
		c.Lines = append(c.Lines, line)
	}
	sortLines(c.Lines)
	return &c
}

// spread returns the median, the upper one of two, and the difference between the most and the
// least.
func spread(list []uint64) (median, noise uint64) {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2], list[len(list)-1] - list[0]
}
