// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"io"
	"regexp"
)

// Verdict is the outcome of a gate.
type Verdict string

// The verdicts.
const (
	Good    Verdict = "good"
	Bad     Verdict = "bad"
	Unknown Verdict = "unknown" // neither can be said: Result.Why has the reasons
)

// Options choose what is run, and what it is compared with.
type Options struct {
	Command   []string
	Record    []string  // flags of record
	Repeat    int       // runs, at least 1
	Budget    uint64    // bytes of one GPU; 0: no limit
	Baseline  string    // a file that Save wrote, or a capture; "": nothing to compare with
	Tolerance Tolerance // by how much more than the baseline the peak may be
	EachLine  bool      // a line that grew is bad, also if the peak did not grow
	Tool      string    // "vramprof 1.2"
	Stderr    io.Writer // gets what the command and record print
	Measure   Measuring
}

// Tolerance is a share of the baseline's peak, or a number of bytes.
type Tolerance struct {
	Share float64
	Bytes uint64
}

// of returns the tolerance in bytes.
func (t Tolerance) of(before uint64) uint64 { return max(t.Bytes, uint64(t.Share*float64(before))) }

// Result is what a gate found.
type Result struct {
	Verdict  Verdict
	Why      []string // why it is unknown
	Command  string
	Script   string       // the first word of the command that is a file of the sources, relative to their folder
	Now      *Measurement // nil if no run could be measured
	Before   *Measurement // nil without a baseline
	Budget   uint64
	Limit    uint64 // what Now.Peak may be more than Before.Peak
	Noise    uint64 // part of Limit: the larger spread of repeated runs
	OverPeak bool   // the peak exceeds the baseline's by more than Limit
	Over     bool   // the budget is exceeded
	Unsure   bool   // the budget may be exceeded: see Measurement.Least
	Lines    []Change
	Grew     int // of Lines, from the first on: those that grew
	EachLine bool
	Tool     string
}

// Change is a line of code, with the bytes that it held at the peak before and now.
type Change struct {
	Line
	Before uint64
	Old    int // its line in the baseline, 0 if it had none or is the same
	Grew   bool
}

// Measurement is the GPU memory of a run, or of several, at the peak of the GPU that had most.
type Measurement struct {
	Peak      uint64 `json:"peak_bytes"`     // what its calls allocated, of all processes that ran together; the median of several runs
	Usage     uint64 `json:"usage_bytes"`    // the same with contexts and what else NVML reported; the most of several runs
	Least     uint64 `json:"least_bytes"`    // of Usage: what one process alone had
	Error     uint64 `json:"sampling_bytes"` // standard error of the largest line; 0: each stack was taken
	Lost      uint64 `json:"lost_events,omitempty"`
	Processes int    `json:"processes"`         // that used CUDA
	Unread    int    `json:"unread,omitempty"`  // of them, those that ended before NVML was read: Usage has no context of theirs
	Running   int    `json:"running,omitempty"` // of them, those that ran on after the session: their peak may be higher
	Runs      int    `json:"runs"`
	Noise     uint64 `json:"noise_bytes"` // of Peak: the most less the least of several runs
	Lines     []Line `json:"lines"`       // at the peak, most bytes first
}

// Line is a line of the user's own code, or memory without one: then only Function is set.
type Line struct {
	Function string `json:"function"`
	File     string `json:"file,omitempty"` // below the folder of the sources as a relative path, any other as it was
	Line     int    `json:"line,omitempty"`
	Text     string `json:"text,omitempty"` // of the line, "" if it was not read
	Python   bool   `json:"python,omitempty"`
	Mark     bool   `json:"mark,omitempty"`
	Bytes    uint64 `json:"bytes"`                 // the median of several runs
	Noise    uint64 `json:"noise_bytes,omitempty"` // the most less the least of several runs
}

// Measuring chooses how a capture is measured.
type Measuring struct {
	Folder string         // of the sources, whose lines are read; "": none are
	Mine   *regexp.Regexp // your own code; nil: all but libraries
}
