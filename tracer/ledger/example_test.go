// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// A ledger takes events in the order in which the kernel reports them. A snapshot sums what is live
// by site, the largest first.
func Example() {
	const model, cache = 1, 2 // ids of stacks
	alloc := func(time, address, size, stack uint64) *ledger.Event {
		return &ledger.Event{
			Op: ledger.Alloc, Kind: ledger.Device, PID: 4242, TID: 4242, Time: time,
			Address: address, Size: size, Stack: stack, API: "cudaMalloc",
		}
	}
	l := ledger.New(ledger.Options{Begin: 1})
	l.Tell(ledger.Process{PID: 4242, Comm: "python3"})
	l.Apply(alloc(2, 0x7f0000, 4096, model))
	l.Apply(alloc(3, 0x7f2000, 8192, model))
	l.Apply(alloc(4, 0x7f8000, 1024, cache))
	l.Apply(&ledger.Event{Op: ledger.Free, PID: 4242, TID: 4242, Time: 5, Address: 0x7f0000})

	s := l.Snapshot(6, time.Now())
	for _, site := range s.Sites {
		process := s.Processes[site.Process]
		fmt.Printf("%s [%d], stack %d: %d of %d bytes are live\n", process.Comm, process.PID, site.Stack, site.LiveBytes, site.AllocBytes)
	}
	// Output:
	// python3 [4242], stack 1: 8192 of 12288 bytes are live
	// python3 [4242], stack 2: 1024 of 1024 bytes are live
}

// log prints where memory begins and ends.
type log struct{ ledger.Observer }

func (log) Began(process, pid uint32) {}

func (log) Allocated(a ledger.Allocation, time uint64) {
	fmt.Printf("%d: %s at %#x has %d bytes\n", time, a.API, a.Address, a.Size)
}

func (log) Freed(a ledger.Allocation, time uint64) {
	fmt.Printf("%d: %#x is free after %d ns\n", time, a.Address, time-a.Time)
}

// An observer is told what ends without a free of its own, too.
func ExampleLedger_Observe() {
	l := ledger.New(ledger.Options{Begin: 1})
	l.Observe(log{})
	l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: 2, Address: 0x7f0000, Size: 4096, Context: 9, API: "cuMemAlloc_v2"})
	l.Apply(&ledger.Event{Op: ledger.ContextDestroy, PID: 7, Time: 30, Context: 9})
	// Output:
	// 2: cuMemAlloc_v2 at 0x7f0000 has 4096 bytes
	// 30: 0x7f0000 is free after 28 ns
}
