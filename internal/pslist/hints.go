// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// Hint adds to each process what a person can do to free what it keeps, and what that would lose.
// It does nothing itself.
func Hint(r *reportjson.ProcessesReport) {
	bytes := map[uint32]uint64{}
	for i := range r.Processes {
		bytes[r.Processes[i].PID] += r.Processes[i].Bytes
	}
	for i := range r.Processes {
		l := &r.Processes[i]
		l.Reap = hintOf(l, bytes[l.PID])
	}
	named := false
	for i := range r.Processes {
		named = named || r.Processes[i].Presence != nil && r.Processes[i].Presence.Unnamed
	}
	for i := range r.GPUs {
		g := &r.GPUs[i]
		switch {
		case g.Nameless > 0:
			g.Reap = "run vramprof ps in the host's pid namespace, where NVML's pids are those of processes"
		case g.Unattributed > 0 && named:
			g.Reap = "no process is listed for " + format.Bytes(g.Unattributed) + ": the driver keeps some of it for itself; the processes that NVML does not list may have the rest"
		case g.Unattributed > 0:
			g.Reap = "no process is listed for " + format.Bytes(g.Unattributed) +
				": the driver keeps some of it for itself; if it is more than on an idle GPU, memory of an ended process may live on in one that has imported it by CUDA IPC, which only a trace shows"
		}
	}
}

func hintOf(l *listed, bytes uint64) *reportjson.ReapReport {
	p := l.Presence
	if p == nil {
		p = &reportjson.PresenceReport{}
	}
	term, kill := fmt.Sprintf("kill -TERM %d", l.PID), fmt.Sprintf("kill -KILL %d", l.PID)
	freed := "its memory on the GPU"
	if bytes > 0 {
		freed = "its " + format.Bytes(bytes) + " on the GPU"
	}
	switch {
	case p.Unseen:
		return &reportjson.ReapReport{Loses: "end it in its own pid namespace: this one has no such process"}
	case p.Sleeping && p.Defunct == 0:
		return &reportjson.ReapReport{Loses: "no signal ends it before its call of the kernel returns; if it never does, only a reset of the GPU or a reboot frees its memory"}
	case p.MPS == "server":
		return &reportjson.ReapReport{Command: "echo quit | nvidia-cuda-mps-control", Loses: "loses the contexts of all clients of MPS, which must end first; a signal would fail them all"}
	case p.MPS == "control":
		return &reportjson.ReapReport{Loses: "has no memory on a GPU: its servers have"}
	case p.MPS == "client":
		return &reportjson.ReapReport{Command: fmt.Sprintf("echo terminate_client SERVER %d | nvidia-cuda-mps-control", l.PID), Loses: "loses " + freed + "; SERVER is the pid of its MPS server. A signal while it computes can fail the server's other clients"}
	case p.Defunct > 0:
		return &reportjson.ReapReport{Command: kill, Loses: "loses what its other threads compute, and " + freed + "; TERM may have no handler left to run"}
	case p.Orphan != nil && p.Orphan.Worker != "":
		return &reportjson.ReapReport{Command: term, Loses: "loses " + freed + " and what it computes, which its parent cannot read any more"}
	case p.Orphan != nil:
		return &reportjson.ReapReport{Command: term, Loses: "loses " + freed + " and what it computes; a daemon loses its parent on purpose: look at its command first"}
	case l.GPU == nil && len(p.Buffers) > 0:
		text := "loses what it computes"
		if others := othersOf(p.Buffers); others != "" {
			text += "; the memory is freed when " + others + " have closed it too"
		}
		return &reportjson.ReapReport{Command: term, Loses: text}
	case l.GPU == nil && len(p.Devices) > 0 && !hasUVM(p.Devices):
		return &reportjson.ReapReport{Loses: "has no nvidia-uvm open, which CUDA opens: it watches GPUs or draws, and ending it frees little"}
	case l.GPU == nil && len(p.Devices) == 0:
		return &reportjson.ReapReport{Loses: "maps CUDA's libraries and keeps no GPU: ending it frees nothing"}
	}
	return &reportjson.ReapReport{Command: term, Loses: "loses " + freed + " and what it has not saved"}
}

func hasUVM(devices []string) bool {
	for _, d := range devices {
		if d == "nvidia-uvm" {
			return true
		}
	}
	return false
}

func othersOf(list []reportjson.BufferReport) string {
	var pids []string
	seen := map[uint32]bool{}
	for _, b := range list {
		for _, pid := range b.Others {
			if !seen[pid] && len(pids) < mostPIDs {
				pids = append(pids, fmt.Sprint(pid))
			}
			seen[pid] = true
		}
	}
	return strings.Join(pids, ", ")
}
