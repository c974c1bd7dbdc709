// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// ObjectsSnapshot is a process whose graphs grow, one with several modules in its baseline, and
// four that only have contexts.
func ObjectsSnapshot() *ledger.Snapshot {
	const gpu = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	begin := 1000 * Second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-3"})
	l.Tell(ledger.GPUs{{UUID: gpu, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 4000 * MiB}})
	process := func(pid uint32, comm string, at uint64) {
		l.Tell(ledger.Process{PID: pid, Comm: comm, Begin: begin + at, Devices: []string{gpu}})
	}
	event := func(pid uint32, e ledger.Event) {
		e.PID, e.TID = pid, pid
		l.Apply(&e)
	}
	process(100, "train", 0)
	process(200, "server", Second)
	process(300, "loader", 0)
	for pid := range uint32(3) {
		process(301+pid, "loader", Second)
		event(301+pid, ledger.Event{Op: ledger.ContextRetain, Context: 0xc0, Time: begin + 2*Second, Stack: 1, API: "cudaFree"})
	}
	usage := func(at uint64, train, server uint64) {
		l.Tell(ledger.UsageReading{Time: begin + at, Usages: []ledger.Usage{
			{PID: 100, UUID: gpu, Bytes: train * MiB}, {PID: 200, UUID: gpu, Bytes: server * MiB}, {PID: 300, UUID: gpu, Bytes: 700 * MiB},
			{PID: 301, UUID: gpu, Bytes: 500 * MiB}, {PID: 302, UUID: gpu, Bytes: 500 * MiB}, {PID: 303, UUID: gpu, Bytes: 512 * MiB},
		}})

	}
	usage(0, 400, 0)
	event(200, ledger.Event{Op: ledger.ContextRetain, Context: 0xc0, Time: begin + 2*Second, Stack: 2, API: "cuDevicePrimaryCtxRetain"})
	for i := range uint64(5) {
		event(200, ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Module, Address: 0x10 + i, Size: MiB, Time: begin + 2*Second, Stack: 2, API: "cuModuleLoadData"})
	}
	event(200, ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: 0xa0, Size: 100 * MiB, Time: begin + 3*Second, Stack: 2, API: "cuMemAlloc_v2"})
	usage(4*Second, 400, 700)
	for i := range uint64(12) {
		event(100, ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.GraphExec, Address: 0x10 + i, Time: begin + 10*Second, Stack: 1, API: "cudaGraphInstantiate"})
	}
	event(100, ledger.Event{Op: ledger.ObjectEnd, Kind: ledger.GraphExec, Address: 0x10, Time: begin + 11*Second})
	event(100, ledger.Event{Op: ledger.ObjectCreate, Kind: ledger.Library, Address: 0x10, Size: 3 * MiB, Time: begin + 10*Second, Stack: 2, API: "cuLibraryLoadData"})
	event(100, ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Address: 0xa0, Size: 10 * MiB, Time: begin + 12*Second, Stack: 1, API: "cudaMalloc"})
	usage(20*Second, 560, 700)
	return l.Snapshot(begin+30*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}
