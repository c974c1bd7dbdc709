// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"fmt"
	"slices"

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
	server := onlyServer(r.Processes)
	for i := range r.Processes {
		l := &r.Processes[i]
		l.Reap = hintOf(l, bytes[l.PID], server)
		if l.Presence != nil && l.Reap.Command != "" {
			l.Reap.Loses += keepsOf(l.Presence)
		}
		if who := restarterOf(l.Workload); who != "" && l.Reap.Command != "" {
			l.Reap.Loses += "; its " + who + " may start it again"
		}
	}
	named := false
	for i := range r.Processes {
		named = named || r.Processes[i].Presence != nil && r.Processes[i].Presence.Unnamed
	}
	left := leftTo(r.Processes)
	for i := range r.GPUs {
		g := &r.GPUs[i]
		switch {
		case g.Nameless > 0:
			g.Reap = "run vramprof ps in the host's pid namespace, where NVML's pids are those of processes"
		case g.Unattributed > 0 && left != "":
			g.Reap = "no process is listed for " + format.Bytes(g.Unattributed) + ": the driver keeps some of it for itself; memory of ended processes lives on in " + left
		case g.Unattributed > 0 && named:
			g.Reap = "no process is listed for " + format.Bytes(g.Unattributed) + ": the driver keeps some of it for itself; the processes that NVML does not list may have the rest"
		case g.Unattributed > 0:
			g.Reap = "no process is listed for " + format.Bytes(g.Unattributed) +
				": the driver keeps some of it for itself. If it is more than on an idle GPU, a process may keep memory of an ended one that it has imported by CUDA IPC, which vramprof serve sees (--connect)"
		}
	}
}

// leftTo returns the pids of those who have imported memory of processes that have ended.
func leftTo(list []listed) string {
	var pids []uint32
	for i := range list {
		if len(endedOwners(list[i].Presence)) > 0 {
			pids = append(pids, list[i].PID)
		}
	}
	return pidsText(once(pids))
}

// onlyServer returns the pid of the server of MPS, 0 if there is none, or several: whose client a
// process is, nothing shows.
func onlyServer(list []listed) (pid uint32) {
	for i := range list {
		if p := list[i].Presence; p != nil && p.MPS == "server" && list[i].PID != pid {
			if pid != 0 {
				return 0
			}
			pid = list[i].PID
		}
	}
	return pid
}

// restarterOf names what may start a process again that has ended, "" if nothing is known.
func restarterOf(w *reportjson.WorkloadReport) string {
	switch {
	case w == nil:
		return ""
	case w.Pod != "" && w.Namespace != "":
		return "pod " + w.Namespace + "/" + w.Pod
	case w.Pod != "":
		return "pod " + w.Pod
	case w.Container != "":
		return "container " + shorten(w.Container, 16)
	}
	return ""
}

// haveClosed returns "42 has closed" or "42, 43 have closed".
func haveClosed(pids []uint32) string {
	if len(pids) == 1 {
		return pidsText(pids) + " has closed"
	}
	return pidsText(pids) + " have closed"
}

func hintOf(l *listed, bytes uint64, server uint32) *reportjson.ReapReport {
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
		pid, which := fmt.Sprint(server), ". "
		if server == 0 {
			pid, which = "SERVER", "; SERVER is the pid of its MPS server. "
		}
		return &reportjson.ReapReport{Command: fmt.Sprintf("echo terminate_client %s %d | nvidia-cuda-mps-control", pid, l.PID), Loses: "loses " + freed + which + "A signal while it computes can fail the server's other clients"}
	case p.Defunct > 0:
		return &reportjson.ReapReport{Command: kill, Loses: "loses what its other threads compute, and " + freed + "; TERM may have no handler left to run"}
	case p.Orphan != nil && p.Orphan.Worker != "":
		return &reportjson.ReapReport{Command: term, Loses: "loses " + freed + " and what it computes, which its parent cannot read any more"}
	case p.Orphan != nil:
		return &reportjson.ReapReport{Command: term, Loses: "loses " + freed + " and what it computes; a daemon loses its parent on purpose: look at its command first"}
	case l.GPU == nil && len(p.Buffers) > 0:
		text := "loses what it computes"
		if others := othersOf(p.Buffers); len(others) > 0 {
			text += "; the memory is freed when " + haveClosed(others) + " it too"
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

// othersOf returns the processes that have the same dma-bufs, each once.
func othersOf(list []reportjson.BufferReport) (pids []uint32) {
	for _, b := range list {
		pids = append(pids, b.Others...)
	}
	return once(pids)
}

// passedOthers returns the processes that have the same descriptors, each once.
func passedOthers(list []reportjson.PassedReport) (pids []uint32) {
	for _, p := range list {
		pids = append(pids, p.Others...)
	}
	return once(pids)
}

func once(pids []uint32) []uint32 {
	slices.Sort(pids)
	return slices.Compact(pids)
}

// keepsOf returns when memory of others is freed that a process keeps, "" if it keeps none.
func keepsOf(p *reportjson.PresenceReport) string {
	switch ended := endedOwners(p); {
	case len(ended) > 0:
		return "; frees what it imported of " + pidsText(ended) + ", unless others have imported it too"
	case p.Imports != nil:
		return "; what it imported is freed when its owner frees it too"
	case len(p.Passed) > 0:
		return "; memory behind the descriptors is freed when " + haveClosed(passedOthers(p.Passed)) + " them too"
	}
	return ""
}

// endedOwners returns the processes that have ended and of which a process has imported memory.
func endedOwners(p *reportjson.PresenceReport) (pids []uint32) {
	if p == nil || p.Imports == nil {
		return nil
	}
	for _, o := range p.Imports.Owners {
		if o.Ended {
			pids = append(pids, o.PID)
		}
	}
	return pids
}
