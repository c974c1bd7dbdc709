// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// KindsSnapshot is a server with memory of every kind, a worker on a MIG instance that maps what
// the server exported, and a job that has ended.
func KindsSnapshot() *ledger.Snapshot {
	const gpu, split, part = "GPU-1a2b3c4d-0000-0000-0000-000000000000", "GPU-5e6f7a8b-0000-0000-0000-000000000000", "MIG-9c0d1e2f-0000-0000-0000-000000000000"
	begin := 1000 * Second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-2"})
	l.Tell(ledger.GPUs{
		{Index: 0, UUID: gpu, Name: "NVIDIA A100-SXM4-80GB", Total: 81920 * MiB, Used: 6500 * MiB},
		{Index: 1, UUID: split, Name: "NVIDIA A100-SXM4-80GB", Total: 81920 * MiB, Used: 700 * MiB},
		{Index: 1, UUID: part, Parent: split, Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Total: 9728 * MiB, Used: 600 * MiB},
	})

	for _, p := range []ledger.Process{
		{PID: 700, Comm: "server", Exe: "/srv/infer/bin/infer", Begin: begin, Devices: []string{gpu, ""}},
		{PID: 800, Comm: "worker", Exe: "/usr/bin/python3.11", Begin: begin, Devices: []string{part}},
		{PID: 900, Comm: "job", Exe: "/usr/bin/job", Begin: begin, Devices: []string{gpu}},
	} {
		l.Tell(p)
	}
	l.Tell(ledger.UsageReading{Time: begin, Usages: []ledger.Usage{{PID: 700, UUID: gpu, Bytes: 500 * MiB}, {PID: 800, UUID: part, Bytes: 400 * MiB}, {PID: 900, UUID: gpu, Bytes: 90 * MiB}}})

	at := begin
	apply := func(e ledger.Event) {
		at += Second / 10
		e.Time, e.TID = at, e.PID
		l.Apply(&e)
	}
	alloc := func(pid uint32, kind ledger.Kind, space ledger.Space, device int32, address, size, stack uint64, api string) {
		apply(ledger.Event{Op: ledger.Alloc, PID: pid, Kind: kind, Space: space, Device: device, Address: address, Size: size, Stack: stack, API: api})
	}
	alloc(700, ledger.Device, 0, 0, 0x100, 2048*MiB, 2, "cuMemAlloc_v2")
	alloc(700, ledger.Device, 0, 1, 0x101, 8*MiB, 2, "cuMemAlloc_v2")
	alloc(700, ledger.Managed, 0, 0, 0x200, 32*MiB, 2, "cuMemAllocManaged")
	alloc(700, ledger.Async, 0, 0, 0x300, 1228*MiB, 1, "cudaMallocAsync")
	alloc(700, ledger.Async, 0, 0, 0x301, 1844*MiB, 1, "cudaMallocAsync")
	apply(ledger.Event{Op: ledger.Free, PID: 700, Address: 0x301})
	apply(ledger.Event{Op: ledger.PoolCreate, PID: 700, Device: 0, Handle: 0x77})
	apply(ledger.Event{Op: ledger.PoolThreshold, PID: 700, Device: 0, Handle: 0x77, Size: 64 * MiB})
	apply(ledger.Event{Op: ledger.Alloc, PID: 700, Kind: ledger.Async, Address: 0x302, Size: 4 * MiB, Handle: 0x77, Stack: 1, API: "cudaMallocFromPoolAsync"})
	alloc(700, ledger.VMM, ledger.Physical, 0, 0x400, 512*MiB, 2, "cuMemCreate")
	alloc(700, ledger.Array, ledger.Arrays, 0, 0x500, 64*MiB, 2, "cuArrayCreate_v2")
	alloc(700, ledger.Array, ledger.Mipmaps, 0, 0x501, ledger.UnknownSize, 4, "cuMipmappedArrayCreate")
	alloc(700, ledger.Graph, 0, 0, 0x600, 16*MiB, 2, "cudaGraphLaunch")
	alloc(700, ledger.Pinned, 0, 0, 0x700, 4096, 2, "cuMemHostAlloc")
	alloc(700, ledger.Pinned, 0, 1, 0x701, 4096, 2, "cuMemHostAlloc")
	alloc(700, ledger.Registered, ledger.Registers, 0, 0x800, 1024*MiB, 2, "cuMemHostRegister_v2")
	for i := range uint64(4) {
		apply(ledger.Event{Op: ledger.Alloc, PID: 700, Kind: ledger.Device, Context: 0xc2, Address: 0x900 + i, Size: 640, Stack: 2, API: "cuMemAlloc_v2"})
	}
	apply(ledger.Event{Op: ledger.ContextDestroy, PID: 700, Context: 0xc2})
	alloc(800, ledger.Imported, 0, 0, 0x100, 2048*MiB, 1, "cudaIpcOpenMemHandle")
	alloc(800, ledger.Imported, ledger.Externals, 0, 0x110, 256*MiB, 4, "cuImportExternalMemory")
	alloc(800, ledger.Async, 0, 0, 0x300, 100*MiB, 1, "cudaMallocAsync")
	alloc(900, ledger.Device, 0, 0, 0x100, 10*MiB, 2, "cuMemAlloc_v2")
	alloc(900, ledger.Imported, 0, 0, 0x200, 2048*MiB, 2, "cuIpcOpenMemHandle_v2")
	l.Tell(ledger.UsageReading{Time: begin + 20*Second, Usages: []ledger.Usage{{PID: 700, UUID: gpu, Bytes: 6376 * MiB}, {PID: 800, UUID: part, Bytes: 510 * MiB}, {PID: 900, UUID: gpu, Bytes: 100 * MiB}}})
	at = begin + 30*Second
	apply(ledger.Event{Op: ledger.Exit, PID: 900})
	return l.Snapshot(begin+60*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}
