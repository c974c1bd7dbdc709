// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"slices"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Table is what the kernel half has of one allocator on a GPU: every block, sampled or not.
type Table struct {
	Device int32  // CUDA ordinal
	Number uint32 // another one: the table began anew
	// Of the latest report: its time, in ns of CLOCK_MONOTONIC, and the allocator's totals in
	// bytes. Live is the part of Allocated that was allocated since the attach.
	Time, Allocated, Live, Reserved uint64
	Given                           uint64 // blocks that were allocated since the attach
	Reports                         uint64 // since the attach
	Unbooked                        uint64 // blocks that had no room in the table
	// No report came while the blocks were read, and none is missing: they are those after Reports.
	Whole  bool
	Blocks []ledger.Block // allocated since the attach, in any order
}

// Tables reads the tables of the allocators of a process on GPUs, again until no report comes
// meanwhile, at most for patience. Any goroutine may call it. It takes longer with more blocks of
// all processes, 0.5 s for a million.
func (a *Allocators) Tables(pid uint32, patience time.Duration) (list []Table) {
	a.mu.Lock()
	var keys []bpf.TensorKey
	if p := a.processes[pid]; p != nil {
		keys = append(keys, p.allocators...)
	}
	a.mu.Unlock()
	for end := time.Now().Add(patience); ; {
		list = a.tables(keys)
		torn := slices.ContainsFunc(list, func(t Table) bool { return !t.Whole && t.Unbooked == 0 })
		if !torn || !time.Now().Before(end) {
			return list
		}
	}
}

// tables reads the tables of some allocators once.
func (a *Allocators) tables(keys []bpf.TensorKey) (list []Table) {
	owners := Owners{}
	before := make([]bpf.TensorDevice, len(keys))
	for i, key := range keys {
		if device, ok := deviceOf(key); ok && device >= 0 && a.mapOf(key).Lookup(&key, &before[i]) == nil {
			owners[before[i].Number] = a.owner(key.Pid, device, &before[i])
		}
	}
	blocks, _ := a.collect(owners)
	for i, key := range keys {
		var after bpf.TensorDevice
		o, ok := owners[before[i].Number]
		if device, _ := deviceOf(key); !ok || device != o.device || a.mapOf(key).Lookup(&key, &after) != nil {
			continue
		}
		t := Table{
			Device: o.device, Number: after.Number, Time: after.Latest, Allocated: after.Allocated, Live: after.Live, Reserved: after.Reserved,
			Reports: after.Ended, Unbooked: after.Unbooked,
		}
		for _, c := range after.Classes {
			t.Given += c.Allocs
		}
		sum := uint64(0)
		for _, b := range blocks[key.Pid] {
			if b.Device == o.device {
				t.Blocks = append(t.Blocks, b)
				sum += b.Size
			}
		}
		still := before[i].Begun == before[i].Ended && before[i].Begun == after.Begun && after.Begun == after.Ended && before[i].Number == after.Number
		t.Whole = still && sum == t.Live && t.Unbooked == 0
		list = append(list, t)
	}
	return list
}
