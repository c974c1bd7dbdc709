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

// Code says why a captured trace may not be what the program did.
type Code uint8

const (
	// NotFromStart: the allocator had memory before its first event, and no exact reading says what. Count is
	// the bytes that it had allocated.
	NotFromStart    Code = iota + 1
	Sampled              // only Count of Of blocks that were allocated are in the capture
	NoSizes              // Count of Of blocks have no requested size, stream and pool
	NoEnds               // of Count of Of frees it is not known whether, or until when, the memory waited for streams
	UnknownBlocks        // Count of Of frees are of blocks that the trace does not have
	Lost                 // Count events of the process were lost
	Missing              // parts of the capture are missing
	Untraced             // Count times the tensors were not traced, as with --budget
	UnknownSettings      // neither the environment nor the allocator's settings could be read
	ChangedSettings      // the program changed them: Text became Other
	OtherSettings        // Text has an option that is not simulated; Err says which
	UnknownVersion
	OtherVersion // Text is a version that is not simulated
	SharedPools  // Count private pools of the start could not be told from later ones
)

// Condition is one of these, with its figures. Only OtherSettings, OtherVersion and ChangedSettings have texts, which
// the traced process chose.
type Condition struct {
	Code        Code
	Count, Of   uint64
	Text, Other string
	Err         error
}

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
