// SPDX-License-Identifier: Apache-2.0

// Package whatif computes what a recorded program would have reserved with other settings of
// PyTorch's allocator, on another GPU, or changed.
package whatif

import "github.com/vramprof/vramprof/internal/allocsim"

// Scenario is one thing to try: other settings, or another program.
type Scenario struct {
	// Name is what the table calls it, such as "expandable_segments:True". It is of vramprof or of
	// the user, never of the traced process.
	Name     string
	Settings allocsim.Settings
	// Change returns the trace of the changed program; nil: as it ran.
	Change func(*allocsim.Trace) (*allocsim.Trace, error)
	// High is the trace of the changed program with the most memory, where Change returns the one
	// with the least because nothing proves how much the change leaves; nil: it is Change's.
	High *allocsim.Trace
	// Remedies are what was changed.
	Remedies []Applied
}

// Range is what a figure is over all orders of addresses, in bytes. Where the order does not
// matter, both are equal.
type Range struct {
	Low, High uint64
}

func (r *Range) add(bytes uint64) {
	r.Low, r.High = min(r.Low, bytes), max(r.High, bytes)
}

// join sets a range to one that has both.
func (r *Range) join(a, b Range) { r.Low, r.High = min(a.Low, b.Low), max(a.High, b.High) }

// Verdict is whether a scenario runs on a GPU.
type Verdict int

const (
	Unasked Verdict = iota // no GPU was asked for
	Fits
	Depends     // on the addresses that the driver gives
	OutOfMemory // with each order of addresses
)

// Outcome is what a scenario does.
type Outcome struct {
	Scenario  Scenario
	Trace     *allocsim.Trace // that was replayed
	Reserved  Range           // at most, on a GPU without limit
	Stuck     uint64          // of Reserved, at its peak: free beside blocks that live, at most
	Allocated Range           // bytes of its blocks at most
	RunsIn    Range           // least capacities with which it does not run out of memory, up to Grain
	Grain     uint64
	Orders    int // of addresses that were replayed

	// On the asked GPU.
	Verdict  Verdict
	Failures int // orders that run out of memory
	FailedAt int // first operation of Trace that one of them fails at, or -1
	Retries  int // how often PyTorch gives back its cache, at most
}
