// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"cmp"
	"math"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Captured is what a capture has of PyTorch's allocator on one GPU of one process.
type Captured struct {
	PID     uint32
	Started uint64 // of the process's first event, ns of the capture's clock
	Trace   *allocsim.Trace
	// Sites are ids of stacks for Reader.Stack, by allocsim.Block.Site; 0: unknown, as of blocks that are older than
	// the attach.
	Sites []uint64
	// Streams are the handles of the trace's streams.
	Streams    []uint64
	Late       bool        // the trace begins with a reading of the running allocator
	Other      other       // what the process had on the GPU besides
	Conditions []Condition // nil: the trace is all that the program did
}

// maxTraces bounds the processes and GPUs of one capture.
const maxTraces = 1 << 12

// Load returns the traces of a capture, by pid and device. Errors are those of reading it.
func Load(r *capture.Reader) ([]*Captured, error) {
	b := &books{traces: map[key]*recorded{}, processes: map[uint32]*about{}}
	p := r.Player()
	if err := p.PlayTo(math.MaxUint64, b); err != nil {
		return nil, err
	}
	var list []*Captured
	for k, t := range b.traces {
		b.ended = append(b.ended, ended{t, b.of(k.pid), b.total(k)})
	}
	for _, e := range b.ended {
		if c := e.recorded.finish(e.about, e.total); c != nil {
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

type key struct {
	pid    uint32
	device int32
}

// about is what is known of a process.
type about struct {
	uuids    []string
	lost     uint64
	untraced uint64
	torch    []ledger.PyTorch // that differ from the one before
}

// books collects the traces of a capture.
type books struct {
	traces    map[key]*recorded
	processes map[uint32]*about
	gpus      []ledger.GPU
	ended     []ended
}

// ended is a trace of a process that has ended.
type ended struct {
	*recorded
	about *about
	total uint64
}

// end ends the traces of a process: its pid may be used again.
func (b *books) end(pid uint32) {
	for k, t := range b.traces {
		if k.pid == pid {
			if len(b.ended) < maxTraces {
				b.ended = append(b.ended, ended{t, b.of(pid), b.total(k)})
			}
			delete(b.traces, k)
		}
	}
	delete(b.processes, pid)
}

func (b *books) of(pid uint32) *about {
	a := b.processes[pid]
	if a == nil {
		a = &about{}
		b.processes[pid] = a
	}
	return a
}

// total returns the memory of a GPU, or 0.
func (b *books) total(k key) uint64 {
	uuids := b.of(k.pid).uuids
	for _, g := range b.gpus {
		if k.device >= 0 && int(k.device) < len(uuids) && g.UUID == uuids[k.device] || len(b.gpus) == 1 {
			return g.Total
		}
	}
	return 0
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
		for pid, n := range in.LostBy {
			b.of(pid).lost = n
			for _, e := range b.ended {
				if e.pid == pid {
					e.about.lost = n
				}
			}
		}
	case ledger.Untraced:
		for _, t := range b.traces {
			t.untraced++
		}
	case ledger.PyTorch:
		a := b.of(in.PID)
		if n := len(a.torch); n == 0 || a.torch[n-1].Settings != in.Settings || a.torch[n-1].Version != in.Version || a.torch[n-1].InUse != in.InUse {
			if n < maxSettings {
				a.torch = append(a.torch, in)
			}
		}
	case ledger.UsageReading:
		b.takeUsage(in)
	case ledger.TensorReading:
		for i := range in.Totals {
			if t := b.traces[key{in.Totals[i].PID, in.Totals[i].Device}]; t != nil {
				t.counted = counted(&in.Totals[i])
			}
		}
	case ledger.AllocatorReading:
		b.takeReading(&in)
	}
}

// takeUsage compares what NVML reports of each process with what its PyTorch has reserved.
func (b *books) takeUsage(in ledger.UsageReading) {
	for k, t := range b.traces {
		uuids := b.of(k.pid).uuids
		for _, u := range in.Usages {
			if u.PID == k.pid && int(k.device) < len(uuids) && uuids[k.device] == u.UUID {
				t.other.used(u.Bytes, u.Rough)
			}
		}
	}
}

// maxSettings bounds how often the settings of a process may change.
const maxSettings = 64

func counted(t *ledger.TensorTotals) (blocks uint64) {
	for i := range t.Classes {
		blocks += t.Classes[i].Allocs
	}
	return blocks + t.Unbooked
}

// traceOf returns the trace of an allocator, or nil if there are too many.
func (b *books) traceOf(pid uint32, device int32) *recorded {
	k := key{pid, device}
	t := b.traces[k]
	if t == nil && device >= 0 && len(b.traces) < maxTraces {
		t = newRecorded(k)
		b.traces[k] = t
	}
	return t
}

func (b *books) Apply(e *ledger.Event) {
	switch {
	case e.Op == ledger.Exit || e.Op == ledger.Exec:
		b.end(e.PID)
	case e.Kind == ledger.Tensor && e.Space == ledger.Blocks:
		if t := b.traceOf(e.PID, e.Device); t != nil {
			t.block(e)
		}
	case e.Space == ledger.Addresses || e.Op == ledger.Map || e.Op == ledger.Unmap || e.Op == ledger.AllocFailed:
		for k, t := range b.traces { // few
			if k.pid == e.PID {
				t.driver(e)
			}
		}
	}
}
