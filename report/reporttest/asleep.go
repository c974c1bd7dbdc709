// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// AsleepSnapshot is an inference server with 60 GiB of weights asleep, allocated by stack 1, and 2
// GiB allocated by stack 3 that stayed on the GPU, in a segment of 3 GiB.
func AsleepSnapshot() *ledger.Snapshot {
	const gpu, gib = "GPU-1a2b3c4d-0000-0000-0000-000000000000", uint64(1 << 30)
	l := ledger.New(ledger.Options{Begin: Second})
	l.Tell(ledger.GPUs{{UUID: gpu, Total: 80 * gib, Used: 4 * gib}})
	l.Tell(ledger.Process{PID: 7, Comm: "vllm", Begin: Second, Devices: []string{gpu}})
	l.Tell(ledger.UsageReading{Time: Second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 300 * MiB}}})
	apply := func(e ledger.Event) {
		e.PID, e.TID, e.Time = 7, 7, max(e.Time, 2*Second)
		l.Apply(&e)
	}
	blocks := []ledger.Block{{Address: 1 << 40, Size: 2 * gib}, {Address: 2 << 40, Size: 60 * gib}}
	for i, size := range []uint64{3 * gib, 61 * gib} {
		handle, at := uint64(i+1), uint64(i+1)<<40
		apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.VMM, Space: ledger.Physical, Address: handle, Size: size, Stack: 4, API: "cuMemCreate"})
		apply(ledger.Event{Op: ledger.Map, Address: at, Size: size, Handle: handle})
	}
	apply(ledger.Event{Op: ledger.Allocator, Handle: 64 * gib})
	for i, b := range blocks {
		apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, Address: b.Address, Size: b.Size, Stack: []uint64{3, 1}[i], API: "torch"})
	}
	apply(ledger.Event{Op: ledger.Unmap, Address: 2 << 40, Size: 61 * gib, Time: 3 * Second})
	apply(ledger.Event{Op: ledger.Free, Space: ledger.Physical, Address: 2, Time: 3 * Second})
	totals := ledger.TensorTotals{PID: 7, Reported: 3 * Second, Allocated: 62 * gib, Reserved: 64 * gib, Classes: make([]ledger.ClassTotals, ledger.SizeClasses)}
	for _, b := range blocks {
		totals.Classes[ledger.SizeClass(b.Size)] = ledger.ClassTotals{Allocs: 1, AllocBytes: b.Size}
	}
	l.Tell(ledger.TensorReading{Time: 4 * Second, Totals: []ledger.TensorTotals{totals}})
	l.Tell(ledger.BlockList{PID: 7, Blocks: blocks})
	l.Tell(ledger.UsageReading{Time: 4 * Second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 3372 * MiB}}})
	return l.Snapshot(5*Second, time.Unix(1_790_000_000, 0))
}
