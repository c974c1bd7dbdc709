// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/remedy"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// readCapture reads what a capture has of PyTorch's allocators. The jobs need the reader.
func readCapture(r *capture.Reader) ([]*Job, error) {
	list, err := Load(r)
	if err != nil {
		return nil, err
	}
	s, err := r.Snapshot(r.End())
	if err != nil {
		return nil, err
	}
	var jobs []*Job
	for _, c := range list {
		j := &Job{Comm: nameOf(s, c.PID), PID: c.PID, Device: int32(c.Trace.Device), Trace: c.Trace, Stacks: sites{c.Sites, r}, Late: c.Late, Refused: c.Conditions}
		j.Other, j.OtherKnown = c.Other.most()
		if len(j.Refused) == 0 {
			remedy.MarkSteps(j.Trace, j.Stacks)
		}
		j.Prove()
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		jobs = []*Job{{Trace: &allocsim.Trace{}, Refused: []Condition{{Code: NoTensors}}}}
	}
	return jobs, nil
}

func nameOf(s *ledger.Snapshot, pid uint32) (name string) {
	for i := range s.Processes {
		if s.Processes[i].PID == pid {
			name = s.Processes[i].Comm
		}
	}
	return name
}

// sites are the stacks of a trace's sites.
type sites struct {
	ids []uint64
	callstack.Stacks
}

// Stack implements callstack.Stacks.
func (s sites) Stack(site uint64) []callstack.Frame {
	if site >= uint64(len(s.ids)) || s.ids[site] == 0 {
		return nil
	}
	return s.Stacks.Stack(s.ids[site])
}
