// SPDX-License-Identifier: Apache-2.0

// Package steps finds the steps of trainings in the events of a session, and their phases: the most
// memory of each step, and one step as a curve. Its evidence is, in this order, what optimizers
// allocate in their steps, gradients that are dropped (zero_grad), and backward passes that follow
// each other. Without any of these a process has no steps: a server answers requests.
//
// A step ends with the optimizer's step, or with the gradients' end, so that what runs in between,
// such as an evaluation, comes before the next. Captures have the stacks of sampled tensors only:
// what no sampled tensor shows is not found.
package steps

import (
	"slices"

	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// By is how steps are recognized.
type By uint8

const (
	Optimizer By = iota + 1 // an optimizer allocates in its step
	ZeroGrad                // gradients are dropped, as zero_grad does
	Period                  // forward and backward passes follow each other
)

// String returns a code: "optimizer.step".
func (b By) String() string {
	return [...]string{"", "optimizer.step", "zero_grad", "period"}[min(b, Period)]
}

// Sure is how sure the number of steps is.
type Sure uint8

const (
	// Gradient accumulation would show as several steps.
	Guess Sure = iota + 1
	// Steps differ in their number of backward passes, no optimizer shows them, or the sample lacks
	// the optimizer of some: some may be missing.
	Likely
	// Nearly all steps have the same number of backward passes, and each has enough sampled tensors
	// of its optimizer that less than half a step is expected to be missing; or the stack of each
	// tensor is known.
	Certain
)

// String returns a code: "certain".
func (s Sure) String() string { return [...]string{"", "guess", "likely", "certain"}[min(s, Certain)] }

// Steps are the steps of one process. Times are ns of CLOCK_MONOTONIC, sizes are bytes that
// PyTorch's allocator of a GPU has given out.
type Steps struct {
	PID        uint32
	From, To   uint64  // first and last event of the process's tensors
	Devices    []int32 // CUDA ordinals; all levels are in their order
	By         By
	Sure       Sure
	Count      uint64            // steps that have ended
	Open       bool              // another one is under way
	Partial    bool              // the first one began before the attach
	Paused     bool              // they count from From, since the process was not traced before
	Lossy      bool              // events of the process were lost
	Passes     int               // backward passes of most steps
	Unseen     uint64            // steps of Count that only their backward passes show: the sample has no tensor of their optimizer
	Missing    uint64            // how many more the sample lacks, as an estimate; 0: less than half a step
	Optimizers []callstack.Frame // which call optimizer.step; of several, a step has each once; untrusted
	Each       uint64            // the time of a step in the middle, ns
	List       []Step            // at most maxSteps: neighbors are joined
	perFound   float64           // mean of the backward passes of a step
	regular    bool              // nearly all steps have Passes
	details    []Detail
}

// Step is one step, or Count ones that follow each other.
type Step struct {
	Number, Count uint64 // of the first: 1 is the first of the session
	From, To      uint64
	Done          uint64   // when the optimizer of the last was done; To where no optimizer shows it
	High, End     []uint64 // by device: the most in them, and what was left at the end
	HighTime      []uint64
}

// Detail is one step with its runs.
type Detail struct {
	Number uint64
	Open   bool   // it had not ended
	Lead   []*Run // what ran since the step before: an evaluation, setup; it may be all there is
	Runs   []*Run
}

// Run is a part of a step that is in one phase.
type Run struct {
	Phase    phase.Phase
	From, To uint64
	Levels   []Level // by device; those that came later are missing
	context  uint32
}

// Level is what one device had in a Run.
type Level struct {
	First, Last, High uint64
	HighTime          uint64
	Points            []Point // by time; in neighbors that were joined the higher counts
}

// Point is a level from a time on.
type Point struct{ Time, Bytes uint64 }

const (
	maxSteps     = 2048    // records of a process
	maxRuns      = 1024    // of one step
	maxPoints    = 64      // of a run and device
	maxDetails   = 48      // of a process
	maxDevices   = 64      // of a process
	maxProcesses = 256     // with PyTorch at one moment
	maxEnded     = 1024    // processes with steps
	maxKept      = 1 << 18 // runs of all details
	maxBlocks    = 1 << 20 // live sampled tensors that are remembered
	maxContexts  = 1 << 12 // lines that call models and optimizers
	maxFrames    = 8       // of Optimizers
)

// Place is where in the steps a moment lies.
type Place struct {
	// The step, from 1 on. Between: the last step that had ended, 0 for none.
	Step    uint64
	Between bool        // between two steps: an evaluation, setup
	Open    bool        // the step had not ended
	Phase   phase.Phase // Unknown where the moment is none of those that were asked for
	Detail  *Detail     // nil likewise
}

// At returns where a moment lies. ok is false outside of all steps, and where steps were joined.
func (s *Steps) At(time uint64) (p Place, ok bool) {
	for i := range s.details {
		d := &s.details[i]
		if r := runAt(d.Runs, time); r != nil {
			return Place{Step: d.Number, Open: d.Open, Phase: r.Phase, Detail: d}, true
		}
		if r := runAt(d.Lead, time); r != nil {
			return Place{Step: d.Number - 1, Between: true, Phase: r.Phase, Detail: d}, true
		}
	}
	for i := range s.List {
		if x := &s.List[i]; x.From <= time && time < x.To && x.Count == 1 {
			return Place{Step: x.Number}, true
		}
	}
	return Place{}, false
}

// Now is At of a moment that may be after all events, if the process runs then.
func (s *Steps) Now(time uint64, runs bool) (p Place, ok bool) {
	if runs {
		time = min(time, s.To)
	}
	return s.At(time)
}

func runAt(list []*Run, time uint64) *Run {
	for _, r := range list {
		if r.From <= time && time < max(r.To, r.From+1) {
			return r
		}
	}
	return nil
}

// Step returns the record that has a step; nil without one.
func (s *Steps) Step(number uint64) *Step {
	for i := range s.List {
		if x := &s.List[i]; x.Number <= number && number < x.Number+x.Count {
			return x
		}
	}
	return nil
}

// HighTime returns when a step had most on the device that had most of all. ok is false for a step
// that is unknown, or joined with others.
func (s *Steps) HighTime(number uint64) (at uint64, ok bool) {
	x := s.Step(number)
	k, _ := s.high()
	if x == nil || x.Count != 1 || k >= len(x.HighTime) {
		return 0, false
	}
	return x.HighTime[k], true
}

// Index returns the index of a device in levels, or -1.
func (s *Steps) Index(device int32) int { return slices.Index(s.Devices, device) }

// Within counts the steps that ended after one time and up to another.
func (s *Steps) Within(from, to uint64) (n uint64) {
	for i := range s.List {
		x := &s.List[i]
		switch {
		case x.To <= from || x.From >= to:
		case x.From >= from && x.To <= to:
			n += x.Count
		default: // a part of what was joined
			share := float64(min(to, x.To)-max(from, x.From)) / float64(max(x.To-x.From, 1))
			n += uint64(share * float64(x.Count))
		}
	}
	return n
}

// Main returns the device that had most, or ledger.UnknownDevice.
func (s *Steps) Main() int32 {
	if k, _ := s.high(); k < len(s.Devices) {
		return s.Devices[k]
	}
	return ledger.UnknownDevice
}

// high returns the device with the most, and how much that is.
func (s *Steps) high() (device int, most uint64) {
	for i := range s.List {
		for k, v := range s.List[i].High {
			if v > most {
				device, most = k, v
			}
		}
	}
	return device, most
}
