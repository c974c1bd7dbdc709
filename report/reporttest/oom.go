// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	OOMGPU   = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	OtherGPU = "GPU-5e6f7a8b-0000-0000-0000-000000000000"
	GiB      = uint64(1) << 30
)

// Ramp is a history that grows to last within the second half.
func Ramp(last uint64) []uint64 {
	list := make([]uint64, ledger.HistoryLen)
	for i := range list {
		list[i] = last / 2
		if half := len(list) / 2; i >= half {
			list[i] += last / 2 * uint64(i-half+1) / uint64(half)
		}
	}
	return list
}

func Flat(value uint64) []uint64 {
	list := make([]uint64, ledger.HistoryLen)
	for i := range list {
		list[i] = value
	}
	return list
}

// OOMSnapshot is a training job of 62 GiB with a fragmented cache, a traced server on the same GPU,
// one on another GPU, and one that ended long ago.
func OOMSnapshot() *ledger.Snapshot {
	begin := 1000 * Second
	site := func(process int, kind ledger.Kind, stack uint64, bytes, objects uint64, history []uint64) ledger.Site {
		return ledger.Site{Process: process, Kind: kind, Stack: stack, API: "cudaMalloc", LiveBytes: bytes, LiveObjects: objects,
			AllocBytes: bytes, AllocObjects: objects, Oldest: begin + Second, History: history}
	}
	segment := site(0, ledger.Device, 1, 50*GiB, 25, Ramp(50*GiB))
	segment.Segment, segment.Tensors = true, 30*GiB
	cpu := site(0, ledger.Tensor, 2, 70*GiB, 3, Flat(70*GiB))
	cpu.Device = ledger.CPUDevice
	elsewhere := site(2, ledger.Device, 2, 60*GiB, 3, Flat(60*GiB))
	elsewhere.Device = 1
	return WithPeaks(&ledger.Snapshot{
		Host: "gpu-box-1", Begin: begin, End: begin + 1000*Second, Wall: time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC),
		Processes: []ledger.Process{
			{PID: 4242, Comm: "python3", Begin: begin, Devices: []string{OOMGPU}, Workload: ledger.Workload{Rank: "0", WorldSize: "8", Pod: "llama-0", Namespace: "ml"}},
			{PID: 5151, Comm: "infer", Begin: begin, Devices: []string{OOMGPU}},
			{PID: 6161, Comm: "infer", Begin: begin, Devices: []string{OOMGPU, OtherGPU}},
			{PID: 7171, Comm: "job", Begin: begin, End: begin + Second, Devices: []string{OOMGPU}},
		},
		Sites: []ledger.Site{
			cpu, elsewhere, segment,
			site(0, ledger.Tensor, 1, 25*GiB, 4000, Ramp(25*GiB)),
			site(3, ledger.Device, 2, 20*GiB, 3, Flat(20*GiB)),
			site(1, ledger.Device, 2, 12*GiB, 3, Flat(12*GiB)),
			site(0, ledger.Tensor, 4, 5*GiB, 2, Flat(5*GiB)),
			site(0, ledger.Pinned, 2, 4*GiB, 2, Flat(4*GiB)),
			site(0, ledger.Imported, 2, 3*GiB, 1, Flat(3*GiB)),
			site(0, ledger.Async, 2, GiB, 1, Flat(GiB)),
		},
		Tensors: []ledger.Tensors{{Process: 0, Device: 0, Allocated: 40 * GiB, Reserved: 61 * GiB, Peak: 45 * GiB, PeakTime: begin + 900*Second,
			LiveObjects: 4002, LiveBytes: 30 * GiB, Sampled: 300, Older: 10 * GiB, OlderCached: GiB, Segments: 50 * GiB, Cached: 20 * GiB, LargestFree: 1900 * MiB, Error: 200 * MiB, Foreign: 300 * MiB}},
		GPUs: []ledger.GPU{{Index: 3, UUID: OOMGPU, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 76 * GiB}},
		Balances: []ledger.Balance{
			{Process: 0, UUID: OOMGPU, Usage: 63888 * MiB, Baseline: 11*GiB + 300*MiB, Live: 51 * GiB, Gap: int64(100 * MiB)},
			{Process: 1, UUID: OOMGPU, Device: 0, Usage: 12*GiB + 500*MiB, Baseline: 500 * MiB, Live: 12 * GiB},
			{Process: 2, UUID: OtherGPU, Device: 1, Usage: 60 * GiB, Live: 60 * GiB},
			{Process: 3, UUID: OOMGPU, Usage: 20 * GiB, Live: 20 * GiB},
		},
		Stats: ledger.Stats{Lost: 12, LostFor: map[string]uint64{ledger.LostBuffersFull: 12}},
	})
}
