// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// CompareVersion is the version of CompareReport.
const CompareVersion = 1

// CompareReport is the JSON of compare: the GPU memory of processes, captures or moments, side by
// side. Sizes are bytes; lists of bytes have a value for each column. Fields are only added within
// a version.
type CompareReport struct {
	Version int            `json:"version"`
	Columns []ColumnReport `json:"columns"`
	Total   ComparedReport `json:"total"`
	Rows    []ComparedLine `json:"rows"` // the largest difference first; they add up to total
	Odd     []OddReport    `json:"odd"`  // columns that are unlike the others, the largest difference first
}

// ColumnReport is one column.
type ColumnReport struct {
	Name       string   `json:"name"` // what differs: rank, file, pod, process
	File       string   `json:"file"`
	Moment     string   `json:"moment,omitempty"` // as it was asked for: end, peak, 12m30s; absent of a profile
	AfterNS    uint64   `json:"after_ns"`         // the moment, since the session began
	Time       string   `json:"time,omitempty"`   // the moment, RFC 3339
	Host       string   `json:"host,omitempty"`
	PID        uint32   `json:"pid,omitempty"`  // absent if several processes have GPU memory
	Comm       string   `json:"comm,omitempty"` // name of the process
	Processes  int      `json:"processes"`      // that have GPU memory
	Rank       string   `json:"rank,omitempty"`
	Pod        string   `json:"pod,omitempty"`
	Job        string   `json:"job,omitempty"`
	ErrorBytes uint64   `json:"error_bytes,omitempty"` // standard error of the largest line of sampled tensors
	Doubts     []string `json:"doubts,omitempty"`      // what its figures and holders lack
}

// ComparedReport is memory in all columns.
type ComparedReport struct {
	Bytes           []int64 `json:"bytes"`
	MedianBytes     int64   `json:"median_bytes"` // of two columns: the first
	MinBytes        int64   `json:"min_bytes"`
	MaxBytes        int64   `json:"max_bytes"`
	DifferenceBytes int64   `json:"difference_bytes"` // of the column that is furthest from the median
	Odd             []int   `json:"odd,omitempty"`    // columns that are unlike the others
}

// ComparedLine is a line of the user's own code, or a plane without lines.
type ComparedLine struct {
	FrameReport
	ComparedReport
	Planes []string `json:"planes"`          // of its bytes
	Lines  []int    `json:"lines,omitempty"` // its line in each column, where they differ; 0: it has none

	Calls []CalleeReport `json:"calls,omitempty"` // by which the stacks of the line differ, with the bytes of all columns
}

// OddReport is a column that is unlike the others.
type OddReport struct {
	Column          int   `json:"column"`
	Total           bool  `json:"total"`            // its total is odd; else only rows are
	DifferenceBytes int64 `json:"difference_bytes"` // of its total from the median
	Rows            []int `json:"rows"`             // in which it is odd, the largest difference first

	Keepers []KeeperReport `json:"keepers"` // for each of rows: who keeps most of what it has more
}

// KeeperReport is the holder with the most of what a column has more than the median.
type KeeperReport struct {
	Holder string `json:"holder,omitempty"` // absent if unknown, or if the column has less
	Bytes  int64  `json:"bytes"`            // of the row in this column
}

// WriteComparison writes a CompareReport.
func WriteComparison(w io.Writer, c *compare.Comparison) error {
	r := CompareReport{Version: CompareVersion, Total: comparedReport(&c.Total), Rows: []ComparedLine{}, Odd: []OddReport{}}
	for i := range c.Columns {
		r.Columns = append(r.Columns, columnReport(&c.Columns[i], c.Names[i]))
	}
	for i := range c.Rows {
		x := &c.Rows[i]
		r.Rows = append(r.Rows, ComparedLine{stackReport([]callstack.Frame{x.Frame})[0], comparedReport(x), cleaned(x.Planes), x.Lines, calleeReports(x.Calls)})
	}
	for _, o := range c.Odd {
		odd := OddReport{o.Column, o.InAll, o.Difference, append([]int{}, o.Rows...), []KeeperReport{}}
		for _, k := range o.Keepers {
			odd.Keepers = append(odd.Keepers, KeeperReport{k.Path, k.Bytes})
		}
		r.Odd = append(r.Odd, odd)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func comparedReport(r *compare.Row) ComparedReport {
	return ComparedReport{r.Bytes, r.Median, r.Min, r.Max, r.Difference, r.Odd}
}

func columnReport(c *compare.Column, name string) ColumnReport {
	r := ColumnReport{
		Name: name, File: untrusted.Clean(c.File), Moment: untrusted.Clean(c.Moment), AfterNS: c.After, Host: untrusted.Clean(c.Host), Processes: c.All,
		PID: c.Process.PID, Comm: untrusted.Clean(c.Process.Comm), Rank: untrusted.Clean(c.Process.Rank), Pod: untrusted.Clean(c.Process.Pod),
		Job: untrusted.Clean(c.Process.Job), ErrorBytes: c.Error, Doubts: cleaned(slices.Concat(c.Doubts, c.HolderDoubts, c.NoHolders)),
	}
	if !c.Time.IsZero() {
		r.Time = c.Time.UTC().Format(time.RFC3339Nano)
	}
	return r
}

func cleaned(list []string) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = untrusted.Clean(list[i])
	}
	return out
}
