// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// ManagedSnapshot is a process with 2 GiB on a GPU and 60 GiB of managed memory, which NVML does
// not count.
func ManagedSnapshot() *ledger.Snapshot {
	const gpu = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	l := ledger.New(ledger.Options{Begin: Second})
	l.Tell(ledger.GPUs{{UUID: gpu, Total: 80 << 30, Used: 3 << 30}})
	l.Tell(ledger.Process{PID: 7, Comm: "solver", Begin: Second, Devices: []string{gpu}})
	l.Tell(ledger.UsageReading{Time: Second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 300 * MiB}}})
	for i, e := range []ledger.Event{
		{Kind: ledger.Device, Size: 2 << 30, API: "cudaMalloc", Stack: 2},
		{Kind: ledger.Managed, Size: 60 << 30, API: "cudaMallocManaged", Stack: 2},
	} {
		e.Op, e.PID, e.Address, e.Time = ledger.Alloc, 7, uint64(i+1)<<40, 2*Second
		l.Apply(&e)
	}
	l.Tell(ledger.UsageReading{Time: 3 * Second, Usages: []ledger.Usage{{PID: 7, UUID: gpu, Bytes: 2348 * MiB}}})
	return l.Snapshot(4*Second, time.Unix(1_790_000_000, 0))
}
