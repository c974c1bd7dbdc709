// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"cmp"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Held is GPU memory of one line of the user's own code, or of a plane that has no lines: then
// Frame is a mark.
type Held struct {
	Frame   callstack.Frame
	Plane   string
	Bytes   int64
	Keepers []Keeper // who keeps it, as far as that is known
	Below   []string // what the line called, see frames.Below
}

// Keeper is a holder with a part of some memory.
type Keeper struct {
	Path  string // clean of control characters
	Bytes int64
}

// Column is the GPU memory of one process, or of all processes of a file, at one moment.
type Column struct {
	File    string         // as the user named it
	Moment  string         // likewise: "end", "peak", "12m30s"; "" of a profile
	After   uint64         // the moment, ns since the session began
	Time    time.Time      // likewise, on the clock of the wall; zero if unknown
	Host    string         // untrusted
	Process ledger.Process // the only one with GPU memory; PID is 0 if there are several
	All     int            // processes with GPU memory
	Held    []Held
	Error   uint64   // standard error of the largest line of sampled tensors
	Doubts  []string // about the figures; see report.Doubts
	// About the holders of Process: what could not be read; and why none were.
	HolderDoubts []string
	NoHolders    []string
}

// heldBy returns the GPU memory of each process of a snapshot, or of all as if they were process
// -1. Its bytes add up to NVML's figures, as far as the GPUs are known.
func heldBy(s *ledger.Snapshot, st callstack.Stacks, all bool) map[int][]Held {
	list, kept := map[int][]Held{}, report.KeptBy(s)
	for _, h := range report.Holdings(s) {
		if h.Live == 0 || h.Apart() {
			continue
		}
		process := h.Process
		if all {
			process = -1
		}
		f, below := callstack.Frame{Function: h.Mark, Mark: true}, []string(nil)
		if h.Mark == "" {
			stack := frames.Visible(st, h.Site.Stack, h.Site.API)
			head := frames.Headline(stack)
			f, below = stack[head], frames.Below(stack, head)
		}
		list[process] = append(list[process], Held{f, h.Plane, h.Live, keepers(kept[h.Process].Divide(s, &h)), below})
	}
	return list
}

// keepers returns the known holders of some memory.
func keepers(list []report.HeldShare) (known []Keeper) {
	for i := range list {
		if h := &list[i]; h.Line != nil {
			known = append(known, Keeper{h.Line.Path, int64(h.Bytes)})
		}
	}
	return known
}

// maxColumns is the most processes of a capture that are compared.
const maxColumns = 256

// Users returns the processes of a snapshot that have GPU memory, or had some since the attach: the
// 256 with the most, and how many others there are.
func Users(s *ledger.Snapshot) (list []int, others int) {
	most := make([]uint64, len(s.Processes))
	for i := range s.Processes {
		for _, t := range s.Processes[i].Totals {
			if t.Kind.Owned() {
				most[i] = max(most[i], t.PeakBytes)
			}
		}
	}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; t.Device != ledger.CPUDevice {
			most[t.Process] = max(most[t.Process], t.Peak, t.Allocated)
		}
	}
	for i := range s.Balances {
		b := &s.Balances[i]
		most[b.Process] = max(most[b.Process], b.Peak, b.Usage, 1)
	}
	for i, bytes := range most {
		if bytes > 0 {
			list = append(list, i)
		}
	}
	if others = len(list) - maxColumns; others <= 0 {
		return list, 0
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(most[b], most[a]) })
	list = list[:maxColumns]
	slices.Sort(list)
	return list, others
}

// NewColumns returns a column for each of some processes of a snapshot. The caller adds the file
// and the moment.
func NewColumns(s *ledger.Snapshot, st callstack.Stacks, processes []int) []Column {
	held, list := heldBy(s, st, false), make([]Column, len(processes))
	for i, process := range processes {
		list[i] = newColumn(s, process)
		list[i].Held = held[process]
	}
	return list
}

// NewColumn returns one column of all processes of a snapshot. The caller adds the file and the
// moment.
func NewColumn(s *ledger.Snapshot, st callstack.Stacks) Column {
	c := newColumn(s, -1)
	c.Held = heldBy(s, st, true)[-1]
	return c
}

func newColumn(s *ledger.Snapshot, process int) Column {
	c := Column{After: report.Minus(s.End, s.Begin), Time: s.Wall, Host: s.Host, All: 1}
	if process < 0 {
		users, others := Users(s)
		if c.All = len(users) + others; c.All == 1 {
			process = users[0]
		}
	}
	if process >= 0 {
		c.Process = s.Processes[process]
	}
	for i := range s.Tensors {
		if t := &s.Tensors[i]; process < 0 || t.Process == process {
			c.Error = max(c.Error, t.Error)
		}
	}
	for _, d := range report.Doubts(s) {
		if !d.At.AboutHolders() {
			c.Doubts = append(c.Doubts, d.Text)
		}
	}
	if process >= 0 {
		c.HolderDoubts, c.NoHolders = report.HolderDoubts(s, process)
	}
	return c
}

// Comparison is the GPU memory of several columns, side by side.
type Comparison struct {
	Columns []Column
	Names   []string // of the columns; different, clean of control characters
	ByRank  bool     // Names are ranks: "rank 3"
	Total   Row      // all GPU memory
	Rows    []Row    // the largest difference first; they add up to Total
	Odd     []Odd    // columns that are unlike the others, the largest difference first
}

// Row is a line of code, or a plane without lines, in all columns.
type Row struct {
	Frame  callstack.Frame
	Planes []string // of its bytes: tensor, driver or both; or the plane without lines
	Bytes  []int64  // by column
	Lines  []int    // by column, where the columns disagree on the line; else nil
	Median int64    // of two columns: the first
	Min    int64
	Max    int64
	// Of the column that is furthest from the median: its bytes less the median.
	Difference int64
	Odd        []int        // columns that are unlike the others
	Calls      []apart.Call // by what the stacks of the line differ, in all columns

	keepers [][]Keeper // by column; nil without any
}

// measure computes what follows from Bytes.
func (r *Row) measure() {
	r.Min, r.Max = slices.Min(r.Bytes), slices.Max(r.Bytes)
	r.Median = medianOf(r.Bytes)
	for _, bytes := range r.Bytes {
		if d := bytes - r.Median; report.Magnitude(d) > report.Magnitude(r.Difference) {
			r.Difference = d
		}
	}
}

// medianOf returns the median; of two values the first, so that the other is compared with it.
func medianOf(list []int64) int64 {
	if len(list) == 2 {
		return list[0]
	}
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	low, high := sorted[n/2-1], sorted[n/2]
	return low + (high-low)/2
}

// Sum returns the sum of rows under a name.
func Sum(rows []Row, name string) Row {
	sum := Row{Frame: callstack.Frame{Function: name, Mark: true}, Bytes: make([]int64, len(rows[0].Bytes))}
	for i := range rows {
		for k, bytes := range rows[i].Bytes {
			sum.Bytes[k] += bytes
		}
	}
	sum.measure()
	return sum
}
