// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"

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
	// Steps: the trace has the ends of steps.
	Steps bool
	// Other is what the process had at most on this GPU besides what PyTorch reserved, in bytes: its
	// context, and memory of other libraries.
	Other      uint64
	OtherKnown bool

	Proof    allocsim.Proof // that the replay of its own settings is what was recorded
	Refusals []Refusal      // reasons why it is not replayed; none: it is
}

// Reason is why a job is not replayed.
type Reason int

const (
	// OlderMemory: PyTorch had Figure bytes before the recording began.
	OlderMemory Reason = iota
	// Sampled: of Total tensors, Figure were recorded.
	Sampled
	// NoSizes: Figure of Total allocations have no requested size, stream and pool.
	NoSizes
	// Lost: Figure events were lost.
	Lost
	// NoVersion: the file does not name PyTorch's version.
	NoVersion
	// Version: Text is not among the versions whose simulator is proven.
	Version
	// NoSettings: the settings of the allocator are not known.
	NoSettings
	// Settings: Text, an error, says which setting is not simulated.
	Settings
	// Differs: the replay of the job's own settings is not what was recorded. Figure is the operation,
	// Text says what differs.
	Differs
	// Exported: the file is of vramprof, without the sizes that the program requested.
	Exported
	// NoHistory: the file has no history of this device.
	NoHistory
)

// Refusal is a reason with its figures.
type Refusal struct {
	Reason        Reason
	Figure, Total uint64
	Text          string // untrusted
	From          Source
}

// Source is the kind of file that a job was read from: remedies differ.
type Source int

const (
	FromCapture Source = iota
	FromSnapshot
)

// Prove sets the proof of a job by a replay of its own settings, or refuses it. It does nothing where
// the job is refused already.
func (j *Job) Prove(from Source) {
	if len(j.Refusals) > 0 {
		return
	}
	refuse := func(r Refusal) {
		r.From = from
		j.Refusals = append(j.Refusals, r)
	}
	if j.Trace.Version == "" {
		refuse(Refusal{Reason: NoVersion})
		return
	}
	if _, err := allocsim.RulesOf(j.Trace.Version); err != nil {
		refuse(Refusal{Reason: Version, Text: j.Trace.Version})
		return
	}
	proof, err := allocsim.Verify(j.Trace)
	var m *allocsim.Mismatch
	switch {
	case errors.As(err, &m):
		refuse(Refusal{Reason: Differs, Figure: uint64(m.Op), Total: uint64(len(j.Trace.Ops)), Text: m.Error()})
	case err != nil:
		refuse(Refusal{Reason: Differs, Total: uint64(len(j.Trace.Ops)), Text: err.Error()})
	case proof.Reserved == 0:
		refuse(Refusal{Reason: Differs, Total: uint64(len(j.Trace.Ops)), Text: "no figure of reserved memory was recorded"})
	}
	j.Proof = proof
}
