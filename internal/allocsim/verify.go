// SPDX-License-Identifier: Apache-2.0

package allocsim

import "fmt"

// Proof is what a replay under a trace's own settings was compared with.
type Proof struct {
	Allocations int // in the trace
	Addresses   int // allocations whose address is known, and equal
	Reserved    int // operations after which the reserved memory is known, and equal
}

// Mismatch is a difference between a recorded run and its replay.
type Mismatch struct {
	Op        int
	What      Difference
	Want, Got uint64 // of the recorded run, of the replay
}

// Difference is what differs.
type Difference string

const (
	ReservedDiffers Difference = "reserved"
	AddressDiffers  Difference = "address"
	RunsOut         Difference = "out of memory" // only the replay
)

func (m *Mismatch) Error() string {
	return fmt.Sprintf("operation %d: %s is %d, replayed %d", m.Op, m.What, m.Want, m.Got)
}

// Verify replays a trace under its own settings, at its recorded addresses, and compares what was
// reserved and where each block was. The first difference is an error, a *Mismatch: then the trace
// is incomplete, its settings are not those of the run, or the allocator was another one.
func Verify(t *Trace) (Proof, error) {
	var p Proof
	// Where the driver refused memory, it had less than the most that was ever reserved and that
	// much more. So a limit of the most that was reserved refuses the same.
	var capacity uint64
	for _, r := range t.Reserved {
		capacity = max(capacity, r.Bytes)
	}
	next := 0
	for next < len(t.Reserved) && t.Reserved[next].Op < 0 {
		next++
	}
	result, err := run(t, t.Settings, Options{Order: Recorded, Capacity: capacity}, func(a *allocator, op int, piece int32) error {
		if piece != none {
			p.Allocations++
			if want := t.Blocks[t.Ops[op].Block].Address; want != 0 {
				if got := a.nodes[piece].at; got != want {
					return &Mismatch{op, AddressDiffers, want, got}
				}
				p.Addresses++
			}
		}
		for next < len(t.Reserved) && t.Reserved[next].Op == op {
			if want := t.Reserved[next].Bytes; want != a.reserved {
				return &Mismatch{op, ReservedDiffers, want, a.reserved}
			}
			next++
			p.Reserved++
		}
		return nil
	})
	if err == nil && result.Failed >= 0 {
		err = &Mismatch{result.Failed, RunsOut, 0, result.FailedReserved}
	}
	return p, err
}
