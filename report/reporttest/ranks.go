// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// RanksSnapshot is n ranks of a training job, each on its own GPU, with the stacks of TorchStacks.
// Rank 3 has 4 GiB more activations and 300 MiB more of NCCL. From 5 ranks on, rank 4 keeps 1 GiB
// less of cache.
func RanksSnapshot(n int) *ledger.Snapshot {
	const gib = 1024 * MiB
	begin := 1000 * Second
	s := &ledger.Snapshot{Host: "gpu-box-3", Begin: begin, End: begin + 750*Second, Wall: time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC)}
	for i := range n {
		uuid := fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000000", 0x1a2b3c4d+i)
		activations, nccl, cache := 4*gib+uint64(i)*3*MiB, 1*gib, 2*gib
		switch i {
		case 3:
			activations, nccl = activations+4*gib, nccl+300*MiB
		case 4:
			cache -= gib
		}
		optimizer := 6 * gib
		tensors := activations + optimizer
		s.Processes = append(s.Processes, ledger.Process{
			PID: uint32(4242 + i), Comm: "python3", Begin: begin, Devices: []string{uuid},
			Workload: ledger.Workload{Job: "llama-7", Rank: fmt.Sprint(i), LocalRank: fmt.Sprint(i), WorldSize: fmt.Sprint(n)},
			Totals:   []ledger.Total{{Kind: ledger.Device, LiveBytes: tensors + cache + nccl, PeakBytes: tensors + cache + nccl, PeakTime: begin + 700*Second}},
		})
		site := func(stack uint64, api string, kind ledger.Kind, bytes uint64) ledger.Site {
			return ledger.Site{Process: i, Stack: stack, API: api, Kind: kind, LiveObjects: bytes / MiB, LiveBytes: bytes, AllocObjects: bytes / MiB, AllocBytes: bytes, Oldest: begin}
		}
		segments := site(4, "cudaMalloc", ledger.Device, tensors+cache)
		segments.Segment, segments.Tensors = true, tensors
		s.Sites = append(s.Sites, segments,
			site(3, "torch", ledger.Tensor, optimizer), site(1, "torch", ledger.Tensor, activations), site(6, "cuMemCreate", ledger.VMM, nccl))
		s.Tensors = append(s.Tensors, ledger.Tensors{Process: i, Allocated: tensors, Reserved: tensors + cache, Peak: tensors, PeakTime: begin + 700*Second,
			LiveObjects: tensors / MiB, LiveBytes: tensors, AllocObjects: tensors / MiB, AllocBytes: tensors, Sampled: tensors / MiB, Segments: tensors + cache, Cached: cache, Foreign: 400 * MiB})
		s.Balances = append(s.Balances, ledger.Balance{Process: i, UUID: uuid, Usage: tensors + cache + nccl + 402*MiB, Peak: tensors + cache + nccl + 402*MiB,
			Baseline: 400 * MiB, Live: tensors + cache + nccl, Gap: 2 * int64(MiB)})
	}
	return WithPeaks(s)
}
