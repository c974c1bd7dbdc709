// SPDX-License-Identifier: Apache-2.0

package pslist

import (
	"context"
	"slices"

	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// driver is what NVML answers.
type driver struct {
	answers bool
	index   map[string]int // of a GPU or an instance, by UUID
	usage   []ledger.Usage
	mps     []uint32
	gpus    []reportjson.GPUMemoryReport
}

// askDriver asks NVML; without it, connection is nil, and nothing is known.
func askDriver(ctx context.Context, connection *nvml.Driver) (*driver, error) {
	d := &driver{index: map[string]int{}}
	if connection == nil {
		return d, nil
	}
	gpus, err := connection.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	if d.usage, err = connection.Usage(ctx); err != nil {
		return nil, err
	}
	d.answers, d.mps = true, connection.MPS()
	for _, g := range gpus {
		d.index[g.UUID] = g.Index
	}
	d.gpus = divide(gpus, d.usage, connection.Nameless())
	return d, nil
}

// divide divides what each whole GPU has in use. Memory of its instances counts for the GPU.
func divide(gpus []ledger.GPU, usage, nameless []ledger.Usage) (list []reportjson.GPUMemoryReport) {
	whole := map[string]string{}
	for i := range gpus {
		if gpus[i].Parent != "" {
			whole[gpus[i].UUID] = gpus[i].Parent
		} else {
			whole[gpus[i].UUID] = gpus[i].UUID
		}
	}
	sum := func(of []ledger.Usage, uuid string) (bytes uint64) {
		for _, u := range of {
			if whole[u.UUID] == uuid {
				bytes += u.Bytes
			}
		}
		return bytes
	}
	for i := range gpus {
		g := &gpus[i]
		if g.Parent != "" || g.Integrated || g.Total == 0 { // the host's memory, or unknown
			continue
		}
		x := reportjson.GPUMemoryReport{GPU: g.Index, UUID: g.UUID, Used: g.Used, Listed: sum(usage, g.UUID), Nameless: sum(nameless, g.UUID)}
		if known := x.Listed + x.Nameless; x.Used > known { // two readings, not of one instant
			x.Unattributed = x.Used - known
		}
		list = append(list, x)
	}
	return list
}

// The rows of memory without a process.
const (
	namelessRow     = "processes that NVML does not name"
	unattributedRow = "driver, reserved and not attributed"
)

// remainders returns the rows of memory of each GPU that no process is listed for.
func remainders(gpus []reportjson.GPUMemoryReport) (list []listed) {
	for i := range gpus {
		g := &gpus[i]
		for _, row := range []struct {
			bytes uint64
			name  string
		}{{g.Nameless, namelessRow}, {g.Unattributed, unattributedRow}} {
			if row.bytes > 0 {
				list = append(list, listed{GPU: &g.GPU, UUID: g.UUID, Bytes: row.bytes, Command: row.name})
			}
		}
	}
	return list
}

// merge joins what NVML lists, processes that map CUDA's libraries and those that keep a GPU, in
// this order.
func merge(processes []libraries.Process, keepers *keeperIndex, d *driver) []listed {
	list, at := []listed{}, map[uint32][]int{} // rows of a process, which has one for each GPU
	for _, u := range d.usage {
		gpu, named := d.index[u.UUID], u.PID
		pid := keepers.seenAs(named, procfs.Exists(named))
		l := listed{PID: pid, GPU: &gpu, UUID: u.UUID, Bytes: u.Bytes}
		if pid != named {
			presenceOf(&l).NamedPID = named
		} else if !procfs.Exists(named) {
			presenceOf(&l).Unseen = true
		}
		if slices.Contains(d.mps, named) {
			presenceOf(&l).MPS = "client"
		}
		at[pid] = append(at[pid], len(list))
		list = append(list, l)
	}
	add := func(pid uint32, set func(*listed)) {
		if at[pid] == nil {
			at[pid] = []int{len(list)}
			list = append(list, listed{PID: pid})
			if d.answers {
				presenceOf(&list[len(list)-1]).Unnamed = true
			}
		}
		for _, i := range at[pid] {
			set(&list[i])
		}
	}
	for _, p := range processes {
		add(p.PID, func(l *listed) { l.Libraries = p.Libraries })
	}
	for i := range keepers.list {
		add(keepers.list[i].PID, func(l *listed) { keepers.see(l, &keepers.list[i]) })
	}
	for i := range list {
		if p := list[i].Presence; p != nil && keepers.byPID[list[i].PID] == nil && p.Unnamed {
			list[i].Presence = nil // it maps CUDA's libraries, and keeps no GPU
		}
	}
	return list
}
