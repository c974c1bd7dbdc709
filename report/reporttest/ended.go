// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Ended is a session of two processes that have ended: a training with PyTorch that ran out of
// memory and freed nearly all before its end, and a server without PyTorch.
func Ended() *ledger.Snapshot {
	const gpu = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	begin := 1000 * Second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"})
	l.Tell(ledger.GPUs{{Index: 0, UUID: gpu, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB}})
	for pid, comm := range map[uint32]string{4242: "python3", 5151: "infer"} {
		l.Tell(ledger.Process{PID: pid, Comm: comm, Begin: begin})
		l.Tell(ledger.Devices{PID: pid, UUIDs: []string{gpu}})
	}
	event := func(e ledger.Event, seconds uint64) {
		e.TID, e.Time = e.PID, begin+seconds*Second
		if e.API == "" {
			e.API = "cudaMalloc"
		}
		l.Apply(&e)
	}
	usage := func(seconds, training, server uint64) {
		l.Tell(ledger.UsageReading{Time: begin + seconds*Second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu, Bytes: training * MiB}, {PID: 5151, UUID: gpu, Bytes: server * MiB}}})
	}
	l.Apply(&ledger.Event{Op: ledger.Allocator, PID: 4242, TID: 4242, Time: begin + 1})
	usage(1, 310, 310)
	l.Tell(ledger.Segments{3})
	var tensors, segments uint64
	for i := range uint64(12) {
		segments += 64 * MiB
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 4242, Address: (1 + i) << 32, Size: 64 * MiB, Stack: 3}, 2+i)
		tensors += 48 * MiB
		event(ledger.Event{
			Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 4242, Address: (1 + i) << 32, Size: 48 * MiB, Stack: 1 + i%2, API: "torch",
			Told: ledger.ToldAllocated | ledger.ToldLive, Allocated: tensors, Reserved: segments, Live: tensors,
		}, 2+i)
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 5151, Address: (1 + i) << 32, Size: 10 * MiB, Stack: 4}, 2+i)
	}
	usage(14, 310+12*64+2, 310+12*10)
	event(ledger.Event{Op: ledger.OutOfMemory, Kind: ledger.Tensor, PID: 4242, Size: 2 << 30, Stack: 1, API: "torch"}, 15)
	for i := range uint64(12) {
		tensors -= 48 * MiB
		event(ledger.Event{
			Op: ledger.Free, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 4242, Address: (1 + i) << 32, API: "torch",
			Told: ledger.ToldAllocated | ledger.ToldLive, Allocated: tensors, Reserved: segments, Live: tensors,
		}, 16)
		event(ledger.Event{Op: ledger.Free, Kind: ledger.Device, PID: 5151, Address: (1 + i) << 32}, 16)
	}
	event(ledger.Event{Op: ledger.Exit, PID: 4242}, 17)
	event(ledger.Event{Op: ledger.Exit, PID: 5151}, 18)
	s := l.Snapshot(begin+20*Second, time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC))
	l.AddPeaks(s)
	return s
}
