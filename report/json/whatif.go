// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
)

// WhatIfVersion is the "version" of WhatIfReport, with the rule of LeaksVersion.
const WhatIfVersion = 1

// WhatIfReport is the JSON of whatif. Fields are only added within a version.
type WhatIfReport struct {
	File    string           `json:"file"`
	GPU     uint64           `json:"gpu_bytes,omitempty"` // the asked GPU's memory
	Jobs    []ReplayedReport `json:"jobs"`                // one for each process and GPU
	Version int              `json:"version"`
}

// ReplayedReport is what one process did on one GPU, replayed.
type ReplayedReport struct {
	PID         uint32            `json:"pid,omitempty"`
	Command     string            `json:"command,omitempty"`
	Device      int32             `json:"device"`                   // CUDA's number in the process
	Torch       string            `json:"torch_version,omitempty"`  // of PyTorch
	Settings    string            `json:"settings"`                 // of the recorded run
	Refused     []ConditionReport `json:"refused"`                  // why it is not replayed; empty: it is
	Late        bool              `json:"late,omitempty"`           // it begins with a reading of the running allocator: only its own settings are replayed
	Allocations int               `json:"allocations"`              // in the history
	Equal       int               `json:"equal_allocations"`        // whose replay under the recorded settings reserves what was recorded, to the byte
	Steps       int               `json:"steps,omitempty"`          // of a training
	Other       *uint64           `json:"other_bytes"`              // of the process besides PyTorch's memory, at most; null: unknown
	Capacity    *uint64           `json:"capacity_bytes,omitempty"` // of the asked GPU, for PyTorch; 0: nothing remains; absent: no GPU was asked, or it is not replayed
	Scenarios   []ScenarioReport  `json:"scenarios"`
	NotTried    []ConditionReport `json:"not_tried,omitempty"` // asked changes of the program that cannot be predicted
}

// ConditionReport is a reason.
type ConditionReport struct {
	Code   string `json:"code"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

// RangeReport is a figure over the orders of addresses, in bytes. Both are equal where the order
// does not matter.
type RangeReport struct {
	Low  uint64 `json:"low"`
	High uint64 `json:"high"`
}

// ScenarioReport is one thing that was tried. The first is the job as it ran.
type ScenarioReport struct {
	Name      string      `json:"name"`
	Reserved  RangeReport `json:"reserved_bytes"`  // at most, on a GPU without limit
	RunsIn    RangeReport `json:"runs_in_bytes"`   // least memory for PyTorch with which it does not run out of memory
	Grain     uint64      `json:"grain_bytes"`     // how precise RunsIn is
	Allocated uint64      `json:"allocated_bytes"` // by blocks, at most
	// AllocatedLow is the least that Allocated may be, where that is not known.
	AllocatedLow uint64         `json:"allocated_low_bytes,omitempty"`
	Remedies     []RemedyReport `json:"remedies,omitempty"` // what of the program is changed
	Stuck        uint64         `json:"stuck_bytes"`        // of Reserved, at its peak: free beside blocks that live
	Orders       int            `json:"orders"`             // of addresses that were replayed

	Verdict  string `json:"verdict,omitempty"`  // on the asked GPU
	Failures int    `json:"failures,omitempty"` // orders that run out of memory there
	Retries  int    `json:"retries,omitempty"`  // how often PyTorch gives its cache back there, at most
	// The first allocation that runs out of memory: after so many of Allocations and steps, in a
	// line.
	FailedAfter int    `json:"failed_after,omitempty"`
	FailedStep  int    `json:"failed_step,omitempty"`
	FailedLine  string `json:"failed_line,omitempty"`
}

// RemedyReport is one change of the program, with its evidence.
type RemedyReport struct {
	Kind   string  `json:"kind"`
	Option string  `json:"option"`          // of vramprof whatif
	Advice string  `json:"advice"`          // what to change, and what that rests on
	Count  int     `json:"count,omitempty"` // executions, calls, gradients, tensors of a state, or compared passes
	Bytes  uint64  `json:"bytes,omitempty"` // kept, saved, of the state, or scaled
	After  uint64  `json:"after_bytes,omitempty"`
	Ratio  float64 `json:"batch_ratio,omitempty"` // of the largest to the smallest batch
}

// FitReport is the JSON of fit. Fields are only added within a version.
type FitReport struct {
	File    string      `json:"file"`
	GPU     uint64      `json:"gpu_bytes"`
	Jobs    []FittedJob `json:"jobs"`
	Version int         `json:"version"`
}

// FittedJob is what makes one process fit one GPU.
type FittedJob struct {
	ReplayedReport
	// Fits: the job as it ran, or with all Steps, does not run out of memory in any order of
	// addresses.
	Fits     bool      `json:"fits"`
	Verdict  string    `json:"verdict,omitempty"`  // of the same; "depends": in some orders it runs out of memory
	Orders   int       `json:"orders,omitempty"`   // of addresses that were replayed
	Failures int       `json:"failures,omitempty"` // of them, that run out of memory
	Steps    []FitStep `json:"changes"`            // the shortest list that fits, best first; or what comes nearest
	Tried    int       `json:"tried"`              // lists that were replayed
}

// FitStep is one change, on top of those before it.
type FitStep struct {
	Name   string        `json:"name"`
	RunsIn RangeReport   `json:"runs_in_bytes"` // after it
	Before RangeReport   `json:"before_bytes"`
	Remedy *RemedyReport `json:"remedy,omitempty"` // nil: a setting
}

// WriteFit writes what makes programs fit as JSON.
func WriteFit(w io.Writer, r *FitReport) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// WriteWhatIf writes the replays as JSON.
func WriteWhatIf(w io.Writer, r *WhatIfReport) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
