// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// SystemSnapshot is a process on a superchip: 2 GiB of the GPU from CUDA, and 40 GiB of malloc's
// memory on the GPU's NUMA node, read 1 s before the snapshot. A second GPU shares the host's
// memory.
func SystemSnapshot() *ledger.Snapshot {
	const gpu = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	l := ledger.New(ledger.Options{Begin: Second})
	l.Tell(ledger.GPUs{
		{UUID: gpu, Name: "NVIDIA GH200 480GB", Total: 96 << 30, Used: 43 << 30, HasNode: true, Node: 1, Addressing: ledger.AddressingATS},
		{Index: 1, UUID: "GPU-5e6f7a8b-0000-0000-0000-000000000000", Name: "NVIDIA GB10", Total: 121 << 30, Used: 30 << 30, Integrated: true},
	})
	l.Tell(ledger.Process{PID: 7, Comm: "solver", Begin: Second, Devices: []string{gpu}})
	l.Tell(ledger.UsageReading{Time: Second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 300 * MiB}}})
	l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Address: 1 << 40, Size: 2 << 30, Time: 2 * Second, API: "cudaMalloc", Stack: 2})
	l.Tell(ledger.UsageReading{Time: 3 * Second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 2348 * MiB}}})
	l.Tell(ledger.SystemReading{PID: 7, Time: 3 * Second, On: []ledger.SystemOn{{UUID: gpu, Bytes: 40 << 30}}})
	return l.Snapshot(4*Second, time.Unix(1_790_000_000, 0))
}
