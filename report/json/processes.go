// SPDX-License-Identifier: Apache-2.0

package json

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ProcessesVersion is the "version" of ProcessesReport, with the rule of LeaksVersion.
const ProcessesVersion = 1

// ProcessesReport is the JSON of ps. Fields are only added within a version.
type ProcessesReport struct {
	Processes []ListedReport `json:"processes"`
	Version   int            `json:"version"`
}

// ListedReport is a process on one GPU.
type ListedReport struct {
	PID       uint32   `json:"pid"`
	Command   string   `json:"command"` // program and arguments; from vramprof serve, the program alone
	GPU       *int     `json:"gpu"`     // NVML index; null: on no GPU that NVML lists
	UUID      string   `json:"gpu_uuid,omitempty"`
	Bytes     uint64   `json:"bytes"`     // of GPU memory, as NVML reports it
	Libraries []string `json:"libraries"` // CUDA libraries that the process maps; null if only NVML lists it, and from vramprof serve

	Workload *WorkloadReport `json:"workload,omitempty"` // the container, job and rank that it runs for
	OnBehalf string          `json:"-"`                  // Workload in a few words
}

// ProcessesOf lists the processes of a snapshot that have not ended, as ps does, but without their
// libraries and arguments.
func ProcessesOf(s *ledger.Snapshot) *ProcessesReport {
	index := map[string]int{}
	for _, g := range s.GPUs {
		index[g.UUID] = g.Index
	}
	r := &ProcessesReport{Processes: []ListedReport{}, Version: ProcessesVersion}
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.End != 0 {
			continue
		}
		x := ListedReport{PID: p.PID, Command: cmp.Or(untrusted.Clean(p.Exe), untrusted.Clean(p.Comm)), Workload: NewWorkload(p.Workload)}
		onGPU := false
		for k := range s.Balances {
			b := &s.Balances[k]
			gpu, known := index[b.UUID]
			if b.Process != i || !known {
				continue
			}
			onGPU = true
			x := x
			x.GPU, x.UUID, x.Bytes = &gpu, untrusted.Clean(b.UUID), b.Usage
			r.Processes = append(r.Processes, x)
		}
		if !onGPU {
			r.Processes = append(r.Processes, x)
		}
	}
	return r
}

// WriteProcesses writes the processes as JSON.
func WriteProcesses(w io.Writer, r *ProcessesReport) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
