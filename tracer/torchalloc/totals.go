// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/budget"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// Reading is what a panic while totals are read costs, in words.
const Reading = "a reading of tensors"

// Read has the books take the kernel half's totals of all traced processes, in their transaction.
func (a *Allocators) Read(tx *sequence.Tx) {
	time := clock.Now() // a reading may have later reports, but lacks no earlier ones
	var list []ledger.TensorTotals
	a.each(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if a.Processes.IsTraced(key.Pid) {
			a.mu.Lock()
			p := a.of(key.Pid)
			p.has(key)
			p.counts(key, value)
			a.mu.Unlock()
			list = a.appendTotals(tx, list, key, value, device)
		}
	})
	a.Meter.Add(time, a.reportCounts())
	if len(list) > 0 {
		tx.Read(Reading, time, func(tx *sequence.Tx) { tx.Tell(ledger.TensorReading{Time: time, Totals: list}) })
	}
}

// Counts returns how many reports each process has made that has not ended, as of now.
func (a *Allocators) Counts() map[uint32]budget.Count {
	a.each(func(key bpf.TensorKey, value *bpf.TensorDevice, _ int32) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if p := a.processes[key.Pid]; p != nil {
			p.counts(key, value)
		}
	})
	return a.reportCounts()
}

// reportCounts returns how many reports each process has made that has not ended.
func (a *Allocators) reportCounts() map[uint32]budget.Count {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make(map[uint32]budget.Count, len(a.processes))
	for pid, p := range a.processes {
		if p.count.Reports > 0 {
			counts[pid] = p.count
		}
	}
	return counts
}

// readLast has the books take the totals of a process that has ended, and whose events so are all
// booked.
func (a *Allocators) readLast(b ledger.Books, allocators []bpf.TensorKey) {
	var list []ledger.TensorTotals
	for _, key := range allocators {
		var value bpf.TensorDevice
		if device, ok := deviceOf(key); ok && a.mapOf(key).Lookup(&key, &value) == nil {
			list = a.appendTotals(b, list, key, &value, device)
		}
	}
	if len(list) > 0 {
		b.Tell(ledger.TensorReading{Time: clock.Now(), Totals: list})
	}
}

// appendTotals appends the totals of an allocator, unless it is that of its process's parent.
func (a *Allocators) appendTotals(b ledger.Books, list []ledger.TensorTotals, key bpf.TensorKey, value *bpf.TensorDevice, device int32) []ledger.TensorTotals {
	if device >= 0 {
		a.readWhole(&key, value)
	}
	if a.isInherited(b, key.Pid, device, value) {
		return list
	}
	return append(list, totalsOf(key.Pid, device, value))
}

// readAgain is how often an allocator's totals are read again that changed while they were copied.
const readAgain = 8

// readWhole reads an allocator again until no report was under way meanwhile. One that reports
// without a pause stays as it is: some of its classes may lack the latest blocks.
func (a *Allocators) readWhole(key *bpf.TensorKey, value *bpf.TensorDevice) {
	again := *value
	for range readAgain {
		if again.Begun == again.Ended {
			*value = again
			return
		}
		if a.Maps[gpuAllocators].Lookup(key, &again) != nil {
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
