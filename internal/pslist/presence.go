// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"fmt"

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

// keeperIndex has the processes that keep a GPU, by what else is known of them.
type keeperIndex struct {
	list   []gpuprocs.Process
	byPID  map[uint32]*gpuprocs.Process
	inside map[uint32][]*gpuprocs.Process // by the pid in a pid namespace of their own
	shared map[uint64][]uint32            // pids that have a dma-buf, by its inode
}

func indexKeepers(list []gpuprocs.Process) *keeperIndex {
	k := &keeperIndex{list, map[uint32]*gpuprocs.Process{}, map[uint32][]*gpuprocs.Process{}, map[uint64][]uint32{}}
	for i := range list {
		p := &list[i]
		k.byPID[p.PID] = p
		if p.InnerID != p.PID {
			k.inside[p.InnerID] = append(k.inside[p.InnerID], p)
		}
		for _, b := range p.Buffers {
			if pids := k.shared[b.Inode]; len(pids) <= gpuprocs.MaxOthers { // one more, which may be its own
				k.shared[b.Inode] = append(pids, p.PID)
			}
		}
	}
	return k
}

// seenAs returns the pid by which we see a process that NVML lists. Its pid may be one of another
// pid namespace: then there is no such process here, or another one, which keeps no GPU. It is
// translated only where exactly one process that keeps a GPU has that pid in a namespace of its
// own.
func (k *keeperIndex) seenAs(named uint32, exists bool) uint32 {
	if exists && k.byPID[named] != nil {
		return named
	}
	found := named
	for _, p := range k.inside[named] {
		if p.Opens() {
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
func (all *keeperIndex) see(l *listed, k *gpuprocs.Process) {
	p := presenceOf(l)
	p.Devices = devicesOf(k)
	p.Defunct, p.Sleeping = k.Threads, k.State == 'D'
	if role := roles[k.Role]; role != "" {
		p.MPS = role
	}
	if o := k.Orphan; o != nil {
		p.Orphan = &reportjson.OrphanReport{Worker: workers[o.Worker], Former: o.Former, KnownBy: clues[o.Clue], Lives: o.Lives, Name: untrusted.Clean(o.Name)}
	}
	p.Passed = nil
	for _, x := range k.Passed {
		p.Passed = append(p.Passed, reportjson.PassedReport{Others: x.Others})
	}
	p.Buffers = nil
	for _, b := range k.Buffers {
		x := reportjson.BufferReport{Inode: b.Inode, Bytes: b.Bytes, Exporter: untrusted.Clean(b.Exporter), Mapped: b.Mapped}
		for _, pid := range all.shared[b.Inode] {
			if pid != k.PID && len(x.Others) < gpuprocs.MaxOthers {
				x.Others = append(x.Others, pid)
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
