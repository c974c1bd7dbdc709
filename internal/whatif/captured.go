// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Limits of one capture, far above those of real machines.
const (
	maxTraces  = 1 << 12 // allocators
	maxDevices = 64      // of a process
)

// Load returns the traces of a capture, by pid and device. Errors are those of reading it.
func Load(r *capture.Reader) ([]*Captured, error) {
	b := &books{processes: map[uint32]*process{}}
	p := r.Player()
	if err := p.PlayTo(math.MaxUint64, b); err != nil {
		return nil, err
	}
	for pid := range b.processes {
		b.end(pid)
	}
	var list []*Captured
	for _, e := range b.ended {
		for device, t := range e.traces {
			c := t.finish(&e.about)
			if c == nil {
				continue
			}
			c.Trace.Total = b.total(e, device)
			if r.HasGaps() {
				c.Conditions = append(c.Conditions, Condition{Code: Missing})
			}
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b *Captured) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Trace.Device, b.Trace.Device), cmp.Compare(a.Started, b.Started))
	})
	return list, nil
}

// books collects the traces of a capture.
type books struct {
	processes map[uint32]*process
	ended     []*process
	traces    int
	gpus      []ledger.GPU
}

func (b *books) of(pid uint32) *process {
	p := b.processes[pid]
	if p == nil {
		p = &process{pid: pid, traces: map[int32]*recorded{}}
		b.processes[pid] = p
	}
	return p
}

// end ends a process: its pid may be used again.
func (b *books) end(pid uint32) {
	if p := b.processes[pid]; p != nil && len(p.traces) > 0 {
		b.ended = append(b.ended, p)
	}
	delete(b.processes, pid)
}

// total returns the memory of a GPU, or 0.
func (b *books) total(p *process, device int32) uint64 {
	for _, g := range b.gpus {
		if int(device) < len(p.uuids) && g.UUID == p.uuids[device] || len(b.gpus) == 1 {
			return g.Total
		}
	}
	return 0
}

// trace returns the trace of an allocator, or nil if there are too many.
func (b *books) trace(pid uint32, device int32) *recorded {
	p := b.of(pid)
	t := p.traces[device]
	if t == nil && device >= 0 && device < maxDevices && b.traces < maxTraces {
		t = newRecorded(p, device)
		p.traces[device] = t
		b.traces++
	}
	return t
}

func (b *books) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.Process:
		if in.Devices != nil {
			b.of(in.PID).uuids = in.Devices
		}
	case ledger.Devices:
		b.of(in.PID).uuids = in.UUIDs
	case ledger.GPUs:
		b.gpus = slices.Clone(in)
	case ledger.Stats:
		b.setLost(in.LostBy)
	case ledger.Untraced:
		for _, p := range b.processes {
			if in.PID != 0 && in.PID != p.pid {
				continue
			}
			for _, t := range p.traces {
				t.untraced++
			}
		}
	case ledger.PyTorch:
		b.of(in.PID).add(in)
	case ledger.UsageReading:
		b.takeUsage(in)
	case ledger.TensorReading:
		for i := range in.Totals {
			if p := b.processes[in.Totals[i].PID]; p != nil && p.traces[in.Totals[i].Device] != nil {
				p.traces[in.Totals[i].Device].counted = counted(&in.Totals[i])
			}
		}
	case ledger.AllocatorReading:
		b.takeReading(&in)
	}
}

func (b *books) setLost(by map[uint32]uint64) {
	for pid, n := range by {
		if p := b.processes[pid]; p != nil {
			p.lost = n
		}
	}
	for _, p := range b.ended { // the loss may be told only now
		if n := by[p.pid]; b.processes[p.pid] == nil {
			p.lost = max(p.lost, n)
		}
	}
}

// takeUsage compares what NVML reports of each process with what its PyTorch has reserved.
func (b *books) takeUsage(in ledger.UsageReading) {
	for _, u := range in.Usages {
		p := b.processes[u.PID]
		if p == nil {
			continue
		}
		for device, t := range p.traces {
			if int(device) < len(p.uuids) && p.uuids[device] == u.UUID {
				t.other.used(u.Bytes, u.Rough)
			}
		}
	}
}

func counted(t *ledger.TensorTotals) (blocks uint64) {
	for i := range t.Classes {
		blocks += t.Classes[i].Allocs
	}
	return blocks + t.Unbooked
}

func (b *books) Apply(e *ledger.Event) {
	switch {
	case e.Op == ledger.Exit || e.Op == ledger.Exec:
		b.end(e.PID)
	case e.Kind == ledger.Tensor && e.Space == ledger.Blocks:
		if t := b.trace(e.PID, e.Device); t != nil {
			t.block(e)
		}
	case e.Op == ledger.Alloc && e.Space == ledger.Addresses || e.Op == ledger.Map:
		b.of(e.PID).ranges.add(e.Address, e.Size)
	case e.Op == ledger.Free && e.Space == ledger.Addresses:
		given(b.of(e.PID).ranges.remove(e.Address, 1))
	case e.Op == ledger.Unmap:
		given(b.of(e.PID).ranges.remove(e.Address, e.Size))
	case e.Op == ledger.AllocFailed && e.Result == outOfMemory:
		for device, t := range b.of(e.PID).traces {
			if e.Device == device || e.Device == ledger.UnknownDevice {
				t.refuse()
			}
		}
	}
}

// given notes for the allocators that had some memory that it was given back to the driver.
func given(list []memory) {
	for _, m := range list {
		m.owner.gone = append(m.owner.gone, m)
	}
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY and cudaErrorMemoryAllocation.
const outOfMemory = 2

// takeReading begins the traces of a process that have not begun, where the reading is exact.
func (b *books) takeReading(in *ledger.AllocatorReading) {
	for i := range in.Reading.Devices {
		d := &in.Reading.Devices[i]
		if t := b.trace(in.PID, d.Index); t != nil && !t.begun && d.Exact {
			t.begin(in)
		}
	}
}
