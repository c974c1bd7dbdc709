// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"strings"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	MiB    = uint64(1) << 20
	Second = uint64(time.Second)
)

// Snapshot is a training process that leaks, a server that exited, and a process with hostile
// names.
func Snapshot() *ledger.Snapshot {
	begin := 1000 * Second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"})
	l.Tell(ledger.GPUs{
		{Index: 0, UUID: "GPU-1a2b3c4d-0000-0000-0000-000000000000", Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 3500 * MiB},
		{Index: 1, UUID: "GPU-5e6f7a8b-0000-0000-0000-000000000000", Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 500 * MiB},
	})

	gpu := []string{"GPU-1a2b3c4d-0000-0000-0000-000000000000", "GPU-5e6f7a8b-0000-0000-0000-000000000000"}
	l.Tell(ledger.Process{PID: 4242, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: begin, Workload: ledger.Workload{
		Container: "9e073649debeec6d511391c9ec7627ee67ce3a3fb508b0fa0437a97f8e58ba98", Pod: "llama-0", Namespace: "ml", Job: "llama-7",
		Rank: "0", LocalRank: "0", WorldSize: "8",
	}})

	l.Tell(ledger.Devices{PID: 4242, UUIDs: gpu})
	l.Tell(ledger.Process{PID: 5151, Comm: "infer", Exe: "/srv/infer/bin/infer", Begin: begin + Second})
	l.Tell(ledger.Devices{PID: 5151, UUIDs: gpu[1:]})
	l.Tell(ledger.Process{PID: 666, Comm: "\x1b[31mevil\n", Exe: "/tmp/\x1b[31mevil", Begin: begin, Workload: ledger.Workload{
		Container: "019c1fe80d924aa0b61c4df58bdde71c", Job: "\x1b[2J" + strings.Repeat("很", 60) + "\n", Rank: "\x1b1", LocalRank: "-1",
	}})

	l.Tell(ledger.UsageReading{Time: begin, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 1310 * MiB}}})

	event := func(op ledger.Op, kind ledger.Kind, pid uint32, device int32, at, address, size, stack uint64, api string, result int32) {
		l.Apply(&ledger.Event{Op: op, Kind: kind, PID: pid, TID: pid, Device: device, Time: begin + at*Second/10, Address: address, Size: size, Stack: stack, API: api, Result: result})
	}
	event(ledger.Alloc, ledger.Device, 4242, ledger.UnknownDevice, 15, 0x9000, 100*MiB, 4, "cudaMalloc", 0)
	for i := range uint64(100) { // a leak of 20 MiB each second
		event(ledger.Alloc, ledger.Device, 4242, 0, 10*i, 0x10000+i, 20*MiB, 1, "cudaMalloc", 0)
	}
	event(ledger.Free, ledger.Device, 4242, 0, 20, 0x8888, 0, 0, "", 0)
	event(ledger.AllocFailed, ledger.Device, 4242, 0, 900, 0, 60<<30, 1, "cudaMalloc", 2)
	event(ledger.AllocFailed, ledger.Device, 4242, 0, 950, 0, 50<<30, 1, "cudaMalloc", 2)
	event(ledger.Alloc, ledger.Device, 5151, ledger.UnknownDevice, 30, 0x100, 64*MiB, 2, "cuMemAlloc_v2", 0)
	event(ledger.Alloc, ledger.Device, 5151, ledger.UnknownDevice, 31, 0x200, 128*MiB, 2, "cuMemAlloc_v2", 0)
	l.Tell(ledger.UsageReading{Time: begin + 4*Second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 1400 * MiB}, {PID: 5151, UUID: gpu[1], Bytes: 500 * MiB}}})
	event(ledger.Free, ledger.Device, 5151, ledger.UnknownDevice, 50, 0x200, 0, 0, "", 0)
	l.Tell(ledger.UsageReading{Time: begin + 6*Second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 1400 * MiB}, {PID: 5151, UUID: gpu[1], Bytes: 500 * MiB}}})
	event(ledger.Exit, 0, 5151, 0, 600, 0, 0, 0, "", 0)
	event(ledger.Alloc, ledger.Pinned, 666, ledger.UnknownDevice, 40, 0x300, 4096, 3, "cudaMallocHost", 0)
	event(ledger.Alloc, ledger.Managed, 666, 1, 41, 0x400, 3*MiB, 0, "cudaMallocManaged", 0)
	l.Tell(ledger.UsageReading{Time: begin + 99*Second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 3420 * MiB}}})
	l.Tell(ledger.Stats{Lost: 12, LostFor: map[string]uint64{ledger.LostBuffersFull: 12}, Stacks: 107, NoStack: 1, Missing: map[string]uint64{"as unwind tables were not loaded yet": 1}, Truncated: map[string]uint64{"too deep": 1, "no unwind table": 2}})
	l.Tell(ledger.Warning{Text: "/usr/lib/libbroken.so.1 is not ELF and was skipped \x1b[31m"})
	return l.Snapshot(begin+100*Second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}
