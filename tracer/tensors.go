// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"math"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/booking"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// classBound is the least size of a size class, in bytes; see SizeClass of the ledger.
func classBound(class int) float64 {
	if class == 0 {
		return 0
	}
	doubling, quarter := (class-1)/4, (class-1)%4
	return math.Ldexp(512, doubling) * (1 + float64(quarter)/4)
}

// sampleClass is how a size class is sampled.
type sampleClass struct {
	likely float64 // probability to be sampled
	spared uint32  // so many doublings of the mean leave it as it is
}

// sampling gives each size class's probability to be sampled, so that on average
// one block in mean bytes is. Sampling is Poisson over bytes at the middle of the class; classes from
// mean on are taken whole.
func sampling(mean uint64) []sampleClass {
	list := make([]sampleClass, bpf.SizeClasses)
	for class := range list {
		c := &list[class]
		from, to := classBound(class), classBound(class+1)
		c.likely = 1
		switch {
		case mean > 0 && to <= float64(mean):
			c.likely = -math.Expm1(-(from + to) / 2 / float64(mean))
		case from > float64(mean):
			c.spared = uint32(math.Log2(from / float64(max(mean, 1))))
		}
	}
	return list
}

// windowSamples is a limit of samples per second as one of the kernel half's windows, which saves several
// of them: no larger one has room.
func windowSamples(perSecond uint32) uint32 {
	const most = 1 << 24
	const _ = uint32(most * bpf.SavedWindows) // the kernel half's sum of saved windows
	return uint32(min(uint64(perSecond)*bpf.SampleWindow/uint64(time.Second), most))
}

func (t *Tracer) setSampling() error {
	var p []float64
	for class, c := range sampling(t.config.Sample) {
		p = append(p, c.likely)
		threshold := bpf.SampleAlways
		if c.likely < 1 {
			threshold = uint32(c.likely * (1 << 32))
		}
		if err := t.coll.Maps["sample_classes"].Put(uint32(class), bpf.SampleClass{Threshold: threshold, Spared: c.spared}); err != nil {
			return fmt.Errorf("set the sampling of tensors: %w", err)
		}
	}
	t.turn.Tell(ledger.Sampling(p))
	t.turn.Tell(ledger.SampleRate{Mean: t.config.Sample, Limit: t.config.SampleLimit})
	return nil
}

// tensorDevice names the device of a c10::Device; false for one that is neither a GPU nor the host.
func tensorDevice(kind, index int) (int32, bool) {
	switch {
	case kind == bpf.DeviceCPU:
		return ledger.CPUDevice, true
	case kind == bpf.DeviceCUDA && index >= 0:
		return int32(index), true
	}
	return 0, false
}

// totalsStep is by how many bytes an allocator's totals may change before an event tells them, where tensors are sampled. Of more than
// 256 MiB allocated it is one in 128: see totals_drifted of bpf/allocator_totals.h.
const totalsStep = 2 << 20

// handleBlock takes an event of PyTorch's allocator; in a turn.
func (t *Tracer) handleBlock(e *bpf.Event, p *process) {
	device, ok := tensorDevice(int(e.Result), int(e.Device))
	if !ok {
		return
	}
	event := &t.event
	*event = ledger.Event{
		Kind: ledger.Tensor, Space: ledger.Blocks, PID: e.Pid, TID: e.Tid, Device: device, Time: e.Time,
		Address: e.Address, Size: e.Size, Stack: e.Stack, API: "torch",
	}
	p.torch = true
	p.has(allocatorOf(e))
	if e.Flags&bpf.FlagTotals != 0 {
		event.Told, event.Allocated, event.Reserved = ledger.ToldAllocated, e.Context, e.Extra
	}
	switch e.Kind {
	case bpf.KindAllocator:
		event.Op, event.Size, event.Handle = ledger.Allocator, e.Context, e.Extra
	case bpf.KindBlock:
		event.Op, event.Halvings = ledger.Alloc, e.Halvings()
	case bpf.KindBlockFree, bpf.KindTotals:
		event.Op, event.Size = ledger.Free, 0
		if e.Kind == bpf.KindTotals {
			event.Op = ledger.Totals
		}
		if event.Told != 0 {
			event.Told, event.Live = event.Told|ledger.ToldLive, e.Size
		}
	case bpf.KindBlockFailed:
		event.Op, event.Size, event.Stack = ledger.Totals, 0, 0
		if !t.inherits(p, event) {
			t.turn.Apply(event)
		}
		t.outOfMemory(p, OOM{
			PID: e.Pid, Time: e.Time, Stack: e.Stack, API: "torch", Kind: ledger.Tensor, Device: device, Size: e.Size, Allocated: e.Context, Reserved: e.Extra,
		})
		return
	}
	if !t.inherits(p, event) {
		t.turn.Apply(event)
	}
}

// readTensors has the books take the kernel half's totals of all processes in their turn; in a turn.
func (t *Tracer) readTensors() {
	time := clock.Now() // a reading may have later reports, but lacks no earlier ones
	var list []ledger.TensorTotals
	t.eachAllocator(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if p := t.processes[key.Pid]; p != nil && p.traced {
			p.has(key)
			list = t.appendTotals(list, p, key, value, device)
		}
	})
	if len(list) > 0 {
		t.turn.Read(readingTensors, time, func(turn *booking.Turn) { turn.Tell(ledger.TensorReading{Time: time, Totals: list}) })
	}
}

// readLast has the books take the totals of a process that has ended, and whose events so are all in the books; in a turn.
func (t *Tracer) readLast(p *process) {
	var list []ledger.TensorTotals
	for _, key := range p.allocators {
		var value bpf.TensorDevice
		if device, ok := deviceOf(key); ok && t.allocatorsLike(key).Lookup(&key, &value) == nil {
			list = t.appendTotals(list, p, key, &value, device)
		}
	}
	if len(list) > 0 {
		t.turn.Tell(ledger.TensorReading{Time: clock.Now(), Totals: list})
	}
}

// appendTotals appends those of an allocator of a traced process, unless it is its parent's.
func (t *Tracer) appendTotals(list []ledger.TensorTotals, p *process, key bpf.TensorKey, value *bpf.TensorDevice, device int32) []ledger.TensorTotals {
	if device >= 0 {
		t.readWhole(&key, value)
	}
	if t.inherited(p, device, value) {
		return list
	}
	return append(list, totalsOf(key.Pid, device, value))
}

// readAgain is how often an allocator's totals are read again that changed while they were copied.
const readAgain = 8

// readWhole reads an allocator again until no report was under way meanwhile. One that reports without a pause stays as it is: some
// of its classes may lack the latest blocks.
func (t *Tracer) readWhole(key *bpf.TensorKey, value *bpf.TensorDevice) {
	again := *value
	for range readAgain {
		if again.Begun == again.Ended {
			*value = again
			return
		}
		if t.coll.Maps[gpuAllocators].Lookup(key, &again) != nil {
			return
		}
	}
}

func totalsOf(pid uint32, device int32, value *bpf.TensorDevice) ledger.TensorTotals {
	totals := ledger.TensorTotals{
		PID: pid, Device: device, Reported: value.Latest, Allocated: value.Allocated, Reserved: value.Reserved, Live: value.Live,
		Peak: value.Peak, PeakTime: value.PeakTime, OlderFrees: value.OlderFrees, OlderBytes: value.OlderBytes, Unbooked: value.Unbooked,
		Classes: make([]ledger.ClassTotals, len(value.Classes)),
	}
	if value.Reserved == 0 { // it tells no totals
		totals.Allocated = 0
	}
	for i, c := range value.Classes {
		totals.Classes[i] = ledger.ClassTotals{Allocs: c.Allocs, AllocBytes: c.AllocBytes, Frees: c.Frees, FreeBytes: c.FreeBytes}
	}
	return totals
}
