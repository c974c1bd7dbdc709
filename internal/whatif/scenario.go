// SPDX-License-Identifier: Apache-2.0

// Package whatif answers what a recorded program would have reserved with other settings of
// PyTorch's allocator, on another GPU, or changed.
package whatif

import (
	"errors"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// Scenario is one thing to try: other settings, or another program.
type Scenario struct {
	// Name is what the table calls it, such as "expandable_segments:True". It is of vramprof or of the
	// user, never of the traced process.
	Name     string
	Settings allocsim.Settings
	// Change returns the trace of the changed program; nil: as it ran.
	Change func(*allocsim.Trace) (*allocsim.Trace, error)
}

// Range is what a figure is over all orders of addresses, in bytes. Where the order does not matter,
// both are equal.
type Range struct {
	Low, High uint64
}

// Verdict is whether a scenario runs on a GPU.
type Verdict int

const (
	Unknown Verdict = iota // no GPU was asked for
	Fits
	Depends     // on the addresses that the driver gives
	OutOfMemory // with each order of addresses
)

// Outcome is what a scenario does.
type Outcome struct {
	Scenario  Scenario
	Reserved  Range  // at most, on a GPU without limit
	Allocated uint64 // bytes of its blocks at most
	RunsIn    Range  // least capacities with which it does not run out of memory
	Verdict   Verdict
	FailedAt  int // for Depends and OutOfMemory: the first operation that any order fails at
	Retries   int // on the asked GPU: how often PyTorch gives back its cache, at most
}

// Replay returns the outcome of a scenario. Capacity is what the asked GPU has for PyTorch, in bytes;
// 0: none was asked for.
func Replay(t *allocsim.Trace, s Scenario, capacity uint64) (Outcome, error) {
	return Outcome{}, errors.New("not written yet")
}
