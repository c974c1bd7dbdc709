// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/gpuprocs"
)

// listed is a process on one GPU.
type listed = reportjson.ListedReport

func presenceOf(l *listed) *reportjson.PresenceReport {
	if l.Presence == nil {
		l.Presence = &reportjson.PresenceReport{}
	}
	return l.Presence
}

func keeperOf(keepers []gpuprocs.Process, pid uint32) *gpuprocs.Process {
	for i := range keepers {
		if keepers[i].PID == pid {
			return &keepers[i]
		}
	}
	return nil
}

// seenAs returns the pid by which we see a process that NVML lists. Its pid may be one of another
// pid namespace: then there is no such process here, or another one, which keeps no GPU. It is
// translated only where exactly one process that keeps a GPU has that pid in a namespace of its
// own.
func seenAs(keepers []gpuprocs.Process, named uint32, exists bool) uint32 {
	if exists && (keeperOf(keepers, named) != nil || !slices.ContainsFunc(keepers, func(p gpuprocs.Process) bool { return p.InnerID != p.PID })) {
		return named
	}
	found := named
	for i := range keepers {
		if p := &keepers[i]; p.InnerID == named && p.PID != named && p.Opens() {
			if found != named {
				return named // which of two is unknown
			}
			found = p.PID
		}
	}
	return found
}

var roles = map[gpuprocs.Role]string{gpuprocs.MPSServer: "server", gpuprocs.MPSControl: "control"}

var workers = map[gpuprocs.Worker]string{
	gpuprocs.TorchWorker: "data_loader", gpuprocs.SpawnedWorker: "spawned", gpuprocs.ForkServer: "fork_server", gpuprocs.ResourceTracker: "resource_tracker",
}

var clues = map[gpuprocs.Clue]string{gpuprocs.ByEnvironment: "environment", gpuprocs.ByGroup: "process_group", gpuprocs.BySession: "session"}

// see adds to a row what the kernel shows of its process.
func see(l *listed, k *gpuprocs.Process, all []gpuprocs.Process) {
	p := presenceOf(l)
	p.Devices = devicesOf(k)
	p.Defunct, p.Sleeping = k.Threads, k.State == 'D'
	if role := roles[k.Role]; role != "" {
		p.MPS = role
	}
	if o := k.Orphan; o != nil {
		p.Orphan = &reportjson.OrphanReport{Worker: workers[o.Worker], Former: o.Former, KnownBy: clues[o.Clue], Lives: o.Lives, Name: untrusted.Clean(o.Name)}
	}
	p.Buffers = nil
	for _, b := range k.Buffers {
		x := reportjson.BufferReport{Inode: b.Inode, Bytes: b.Bytes, Exporter: untrusted.Clean(b.Exporter), Mapped: b.Mapped}
		for i := range all {
			if all[i].PID != k.PID && slices.ContainsFunc(all[i].Buffers, func(o gpuprocs.Buffer) bool { return o.Inode == b.Inode }) {
				x.Others = append(x.Others, all[i].PID)
			}
		}
		p.Buffers = append(p.Buffers, x)
	}
}

// devicesOf names the device files that a process has open: a GPU's by its number, whatever name it
// was opened by.
func devicesOf(k *gpuprocs.Process) (list []string) {
	for _, minor := range k.GPUs {
		list = append(list, fmt.Sprint("nvidia", minor))
	}
	if k.Control {
		list = append(list, "nvidiactl")
	}
	if k.UVM {
		list = append(list, "nvidia-uvm")
	}
	return list
}
