// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Job is what one process recorded of one device, and whether it can be replayed.
type Job struct {
	Comm   string // untrusted; "" if unknown
	PID    uint32 // 0: unknown
	Device int32

	Trace  *allocsim.Trace
	Stacks callstack.Stacks // of the blocks' sites; nil: none
	Steps  int              // of the trace; 0: unknown
	// Late: the trace begins with a reading of the running allocator, so only its own settings can
	// be replayed.
	Late bool
	// Other is the most that the process had on this GPU in addition to what PyTorch reserved, in
	// bytes: its context, and memory of other libraries.
	Other      uint64
	OtherKnown bool
	Snapshot   bool // of PyTorch; else a capture: remedies differ
	Beside     *Job // the same program with batches of another size; nil: none

	Proof   allocsim.Proof // that the replay of its own settings is what was recorded
	Refused []Condition    // reasons why it is not replayed; none: it is
}

// Prove sets the proof of a job by a replay of its own settings, or refuses it. It does nothing
// where the job is refused already.
func (j *Job) Prove() {
	j.Steps = steps(j.Trace)
	if len(j.Refused) == 0 {
		if c := j.prove(); c != nil {
			j.Refused = append(j.Refused, *c)
		}
	}
}

// steps returns the number of steps that are marked in a trace.
func steps(t *allocsim.Trace) (n int) {
	for _, op := range t.Ops {
		if op.Kind == allocsim.Step {
			n++
		}
	}
	return n
}

func (j *Job) prove() *Condition {
	if j.Trace.Version == "" {
		return &Condition{Code: UnknownVersion}
	}
	if _, err := allocsim.RulesOf(j.Trace.Version); err != nil {
		return &Condition{Code: OtherVersion, Text: j.Trace.Version}
	}
	var err error
	j.Proof, err = allocsim.Verify(j.Trace)
	if err != nil {
		c := &Condition{Code: Differs, Of: uint64(len(j.Trace.Ops)), Err: err}
		var m *allocsim.Mismatch
		if errors.As(err, &m) {
			c.Count = uint64(m.Op)
		}
		return c
	}
	if j.Proof.Reserved == 0 {
		return &Condition{Code: Unchecked}
	}
	return nil
}

// Refused reports whether none of the jobs is replayed.
func Refused(jobs []*Job) bool {
	return !slices.ContainsFunc(jobs, func(j *Job) bool { return len(j.Refused) == 0 })
}

// Pair sets for each job the one of another capture that it is compared with: of the same device
// and, where there are several, in the same order. It returns an error where there is none, or only
// what cannot be replayed.
func Pair(jobs, others []*Job) error {
	nth := map[int32]int{}
	for _, j := range jobs {
		if len(j.Refused) > 0 {
			continue
		}
		n := nth[j.Device]
		nth[j.Device]++
		for _, o := range others {
			if o.Device != j.Device || len(o.Refused) > 0 {
				continue
			}
			if n == 0 {
				j.Beside = o
				break
			}
			n--
		}
		if j.Beside != nil {
			continue
		}
		for _, o := range others {
			if len(o.Refused) > 0 {
				return fmt.Errorf("nothing in it can be compared: %s", o.Refused[0].say())
			}
		}
		return fmt.Errorf("it has no allocations of cuda:%d", j.Device)
	}
	return nil
}
