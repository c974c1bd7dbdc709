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
	Processes []ListedReport    `json:"processes"`
	GPUs      []GPUMemoryReport `json:"gpus,omitempty"`   // without a driver, and from vramprof serve, none
	Unread    int               `json:"unread,omitempty"` // processes that could not be read: only NVML's list may have them
	Version   int               `json:"version"`
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
	Presence *PresenceReport `json:"presence,omitempty"` // how it keeps a GPU, as the kernel shows it
	Reap     *ReapReport     `json:"reap,omitempty"`     // only with --reap-hints
}

// GPUMemoryReport is what a GPU has in use, divided by whose it is.
type GPUMemoryReport struct {
	GPU          int    `json:"gpu"` // NVML index
	UUID         string `json:"gpu_uuid"`
	Used         uint64 `json:"used_bytes"`         // as NVML reports it
	Listed       uint64 `json:"listed_bytes"`       // of the processes that NVML lists with a pid
	Nameless     uint64 `json:"nameless_bytes"`     // of processes that NVML lists without one
	Unattributed uint64 `json:"unattributed_bytes"` // the rest: the driver's own, reserved, and what no process is listed for
	Reap         string `json:"reap,omitempty"`     // only with --reap-hints: where to look for what no process is listed for
}

// PresenceReport is how a process keeps a GPU, by what the kernel shows of it.
type PresenceReport struct {
	Devices  []string       `json:"devices,omitempty"`         // device files that it has open: nvidia0, nvidiactl, nvidia-uvm
	Unnamed  bool           `json:"unnamed,omitempty"`         // NVML does not list it
	Unseen   bool           `json:"unseen,omitempty"`          // NVML lists this pid, and this pid namespace has no such process
	NamedPID uint32         `json:"named_pid,omitempty"`       // NVML lists it by this pid, that of its own pid namespace
	Defunct  int            `json:"defunct_threads,omitempty"` // its first thread has exited, and so many others live
	MPS      string         `json:"mps,omitempty"`
	Orphan   *OrphanReport  `json:"orphan,omitempty"`
	Buffers  []BufferReport `json:"dma_bufs,omitempty"`
	Passed   []PassedReport `json:"passed_descriptors,omitempty"`
	Imports  *ImportsReport `json:"imports,omitempty"`         // only with --connect
	Sleeping bool           `json:"uninterruptible,omitempty"` // it is in a call of the kernel that no signal ends
}

// OrphanReport is a process whose parent has ended.
type OrphanReport struct {
	Worker  string `json:"worker,omitempty"`     // what its name or its arguments say that it was for
	Former  uint32 `json:"former_pid,omitempty"` // its former parent, or an earlier ancestor
	KnownBy string `json:"known_by,omitempty"`   // how former_pid is known
	Lives   bool   `json:"former_lives"`
	Name    string `json:"former_name,omitempty"` // only if it lives
}

// BufferReport is a dma-buf that a process has: memory of a device that is shared between
// processes.
type BufferReport struct {
	Inode    uint64   `json:"inode"`
	Bytes    uint64   `json:"bytes"`
	Exporter string   `json:"exporter,omitempty"`   // the kernel's driver whose memory it is
	Mapped   bool     `json:"mapped_only"`          // without a descriptor; bytes are those of its mappings
	Others   []uint32 `json:"other_pids,omitempty"` // that have the same one
}

// PassedReport is a descriptor of nvidiactl that a process got from another one, or gave to it, as
// those are that CUDA exports memory with.
type PassedReport struct {
	Others []uint32 `json:"other_pids"` // that have it too
}

// ImportsReport is the memory of other processes that a process has imported, as vramprof serve saw
// it.
type ImportsReport struct {
	Bytes  uint64           `json:"bytes"`  // without those of unknown size
	Count  uint64           `json:"count"`  // imported allocations
	Owners []ExporterReport `json:"owners"` // the traced ones, by pid
	More   bool             `json:"more"`   // or there are others, which are unknown
}

// ExporterReport is a process that allocated memory which another one imported.
type ExporterReport struct {
	PID   uint32 `json:"pid"`
	Name  string `json:"name"`
	Ended bool   `json:"ended"`
}

// ReapReport is what a person can do about a process. vramprof does nothing itself.
type ReapReport struct {
	Command string `json:"command,omitempty"` // "" if nothing should be done
	Loses   string `json:"loses"`             // what would be lost
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
