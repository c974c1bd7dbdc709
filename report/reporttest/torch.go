// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TorchStacks are the stacks of TorchSnapshot: 1 an activation, 2 a gradient of the backward
// threads, 3 the optimizer's state, 4 a segment under the activation, 5 one under the backward
// pass, 6 NCCL, 7 pinned memory, 8 CPU tensors, 9 a segment of a server, 10 a pluggable allocator.
func TorchStacks() StackMap {
	tensor := func(op string, rest ...callstack.Frame) []callstack.Frame {
		return append([]callstack.Frame{
			Native("c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)", C10, 0x7010),
			Native("libc10_cuda.so+0x2f020", Torch, 0x2f020),
			Native("at::detail::empty_generic(c10::ArrayRef<long>, c10::Allocator*, c10::DispatchKeySet, c10::ScalarType, std::optional<c10::MemoryFormat>)", TorchCPU, 0x3000),
			Native(op, torchCUDA, 0x4000+uint64(len(op))),
		}, rest...)
	}
	segment := func(rest ...callstack.Frame) []callstack.Frame {
		return append([]callstack.Frame{
			Native("cuMemAlloc_v2", libcuda, 0x1100), Native("cudaMalloc", CUDART, 0x7010), Native("libc10_cuda.so+0x31040", Torch, 0x31040),
		}, rest...)
	}
	forward := []callstack.Frame{
		Native("THPVariable_linear(_object*, _object*, _object*)", torchPy, 0x5000),
		Script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125),
		Native("_PyEval_EvalFrameDefault", Python, 0x430000),
		Script("Block.forward", "/home/ada/llm/model.py", 88),
		Script("Trainer.step", "/home/ada/llm/train.py", 42),
		Script("<module>", "/home/ada/llm/train.py", 7),
		Native("__libc_start_call_main", Libc, 0x27f00),
	}
	backward := []callstack.Frame{
		Native("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", TorchCPU, 0x6000),
		Native("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)", TorchCPU, 0x6100),
		Native("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", TorchCPU, 0x6200),
		Native("start_thread", Libc, 0x89000),
	}
	user := func(function, file string, line int) []callstack.Frame {
		return []callstack.Frame{Script(function, "/home/ada/llm/"+file, line), Script("<module>", "/home/ada/llm/train.py", 7), Native("__libc_start_call_main", Libc, 0x27f00)}
	}
	return StackMap{
		1: tensor("at::native::linear", forward...),
		2: tensor("at::native::mm_out_cuda", backward...),
		3: tensor("at::native::zeros_like", user("Adam.init_state", "optim.py", 31)...),
		4: segment(forward...),
		5: segment(backward...),
		6: append([]callstack.Frame{Native("cuMemCreate", libcuda, 0x1300), Native("ncclCuMemAlloc", nccl, 0x2000), Native("ncclCommInitRankConfig", nccl, 0x2100)}, user("init", "dist.py", 12)...),
		7: append([]callstack.Frame{Native("cudaHostAlloc", CUDART, 0x7200), Native("at::cuda::CachingHostAllocator_impl::allocate", torchCUDA, 0x9000)}, user("Loader.next", "data.py", 63)...),
		8: append([]callstack.Frame{Native("c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)", C10, 0x7010)}, user("Loader.collate", "data.py", 71)...),
		9: {
			Native("cudaMallocAsync", CUDART, 0x7300), Native("libc10_cuda.so+0x41000", Torch, 0x41000),
			Script("serve", "/srv/serve.py", 9), Native("__libc_start_call_main", Libc, 0x27f00),
		},
		10: {
			Native("cudaMalloc", CUDART, 0x7010), Native("my_malloc", Infer, 0x1600),
			Native("torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, signed char, CUstream_st*)", torchCUDA, 0xa000),
			Script("serve", "/srv/serve.py", 9),
		},
	}
}

// TorchSnapshot is two ranks of a training job, the first attached in the middle of it and with a
// list that keeps each step's graph, and a server whose backend reports no tensors. Almost all
// bytes of each GPU are explained.
func TorchSnapshot() *ledger.Snapshot {
	const gpu0, gpu1 = "GPU-1a2b3c4d-0000-0000-0000-000000000000", "GPU-5e6f7a8b-0000-0000-0000-000000000000"
	const gib = 1024 * MiB
	begin := 1000 * Second
	at := func(s uint64) uint64 { return begin + s*Second }
	rising := make([]uint64, 32)
	for i := range rising {
		rising[i] = uint64(i) * 300 * MiB
	}
	site := func(process int, stack uint64, api string, kind ledger.Kind, device int32, objects, bytes uint64) ledger.Site {
		return ledger.Site{Process: process, Stack: stack, API: api, Kind: kind, Device: device, LiveObjects: objects, LiveBytes: bytes,
			AllocObjects: 2 * objects, AllocBytes: 3 * bytes, Oldest: at(3)}
	}
	segment := func(x ledger.Site, tensors uint64) ledger.Site {
		x.Segment, x.Tensors = true, tensors
		return x
	}
	const report = "c10::reportMemoryUsageToProfiler"
	leak := site(0, 1, report, ledger.Tensor, 0, 1860, 9300*MiB)
	leak.Growth, leak.History = int64(4650*MiB), rising
	return WithPeaks(&ledger.Snapshot{
		Host: "gpu-box-3", Begin: begin, End: at(100), Wall: time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC),
		Processes: []ledger.Process{
			{PID: 4242, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: begin, Devices: []string{gpu0, gpu1}, Workload: ledger.Workload{Rank: "0", WorldSize: "2"},
				Totals: []ledger.Total{
					{Device: 0, Kind: ledger.Device, LiveObjects: 31, LiveBytes: 13 * gib, AllocObjects: 40, AllocBytes: 15 * gib, PeakBytes: 14 * gib, PeakTime: at(90)},
					{Device: 0, Kind: ledger.VMM, LiveObjects: 6, LiveBytes: 192 * MiB, AllocObjects: 6, AllocBytes: 192 * MiB, PeakBytes: 192 * MiB, PeakTime: at(2)},
					{Kind: ledger.Pinned, LiveObjects: 5, LiveBytes: 640 * MiB, AllocObjects: 5, AllocBytes: 640 * MiB, PeakBytes: 640 * MiB, PeakTime: at(4)},
					{Device: 0, Kind: ledger.Tensor, LiveObjects: 4812, LiveBytes: 12 * gib},
				}},
			{PID: 4243, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: at(1), Devices: []string{gpu0, gpu1}, Workload: ledger.Workload{Rank: "1", WorldSize: "2"},
				Totals: []ledger.Total{{Device: 1, Kind: ledger.Device, LiveObjects: 12, LiveBytes: 6 * gib, AllocObjects: 12, AllocBytes: 6 * gib, PeakBytes: 6 * gib, PeakTime: at(40)}}},
			{PID: 5000, Comm: "serve", Exe: "/usr/bin/python3.11", Begin: begin, Devices: []string{gpu1},
				Totals: []ledger.Total{{Device: 0, Kind: ledger.Async, LiveObjects: 8, LiveBytes: 2 * gib, AllocObjects: 8, AllocBytes: 2 * gib, PeakBytes: 2 * gib, PeakTime: at(9)}}},
		},
		Sites: []ledger.Site{
			segment(site(0, 4, "cudaMalloc", ledger.Device, 0, 24, 12*gib), 11*gib),
			leak,
			segment(site(1, 4, "cudaMalloc", ledger.Device, 1, 12, 6*gib), 4*gib),
			site(1, 1, report, ledger.Tensor, 1, 300, 4*gib),
			site(0, 3, report, ledger.Tensor, 0, 148, 2048*MiB),
			site(2, 9, "cudaMallocAsync", ledger.Async, 0, 8, 2*gib),
			segment(site(0, 5, "cudaMalloc", ledger.Device, 0, 7, 1*gib), 1*gib-300*MiB),
			site(0, 2, report, ledger.Tensor, 0, 148, 900*MiB),
			site(0, 7, "cudaHostAlloc", ledger.Pinned, 0, 5, 640*MiB),
			site(0, 8, report, ledger.Tensor, ledger.CPUDevice, 20, 200*MiB),
			site(0, 6, "cuMemCreate", ledger.VMM, 0, 6, 192*MiB),
		},
		Sampling: ledger.SampleRate{Mean: MiB, Limit: 4000},
		Tensors: []ledger.Tensors{
			{Process: 0, Device: 0, Allocated: 32*gib + 512, Reserved: 36 * gib, Peak: 33 * gib, PeakTime: at(70),
				LiveObjects: 4812, LiveBytes: 12 * gib, AllocObjects: 441_000, AllocBytes: 900 * gib, Sampled: 700, Halvings: 3, Error: 96 * MiB,
				Older: 20*gib + 512, OlderCached: 36*gib - 13*gib - 20*gib - 512 + 276*MiB, Segments: 13 * gib, Cached: 1*gib + 300*MiB, LargestFree: 1228 * MiB, Foreign: 310 * MiB},
			{Process: 0, Device: ledger.CPUDevice, LiveObjects: 20, LiveBytes: 200 * MiB, AllocObjects: 40, AllocBytes: 600 * MiB, Sampled: 20, Peak: 210 * MiB, PeakTime: at(80)},
			{Process: 1, Device: 1, Allocated: 4 * gib, Reserved: 6 * gib, Peak: 5 * gib, PeakTime: at(50), LiveObjects: 300, LiveBytes: 4 * gib,
				AllocObjects: 600, AllocBytes: 12 * gib, Sampled: 300, Segments: 6 * gib, Cached: 2 * gib, LargestFree: 2 * gib, Foreign: 420 * MiB},
		},
		GPUs: []ledger.GPU{
			{Index: 0, UUID: gpu0, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 38 * gib},
			{Index: 1, UUID: gpu1, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * MiB, Used: 9 * gib},
		},
		Balances: []ledger.Balance{
			{Process: 0, UUID: gpu0, Device: 0, Usage: 37*gib + 42*MiB, Peak: 38 * gib, Baseline: 23*gib + 600*MiB, Live: 13*gib + 192*MiB, Gap: 274 * int64(MiB)},
			{Process: 1, UUID: gpu1, Device: 1, Usage: 6*gib + 416*MiB, Peak: 6*gib + 416*MiB, Baseline: 420 * MiB, Live: 6 * gib, Gap: -4 * int64(MiB)},
			{Process: 2, UUID: gpu1, Device: 0, Usage: 2*gib + 300*MiB, Peak: 2*gib + 300*MiB, Baseline: 300 * MiB, Live: 2 * gib},
		},
		Stats:    ledger.Stats{Events: 5000, Stacks: 900},
		Warnings: []string{"PyTorch's allocator of python3 [4243] says 4.00 GiB on cuda:1, the books have 4.10 GiB"},
	})
}

// Earlier is the same session at half of its time: each site had half of its memory, except the
// last, which has been freed in part.
func Earlier(s *ledger.Snapshot) *ledger.Snapshot {
	e := *s
	e.End = s.Begin + (s.End-s.Begin)/2
	e.Sites = slices.Clone(s.Sites)
	for i := range e.Sites {
		x := &e.Sites[i]
		x.LiveBytes, x.LiveObjects, x.AllocBytes, x.AllocObjects = x.LiveBytes/2, x.LiveObjects/2, x.AllocBytes/2, x.AllocObjects/2
	}
	e.Sites[len(e.Sites)-1].LiveBytes *= 6
	return &e
}

// TorchTimeline is the memory of TorchSnapshot's first process over time, with an error near the
// end.
func TorchTimeline(s *ledger.Snapshot) *timeline.Timeline {
	const steps = 24
	row := timeline.Row{Process: 0, UUID: s.Balances[0].UUID, Device: 0, Unexplained: make([]uint64, steps)}
	t := &timeline.Timeline{Processes: s.Processes, GPUs: s.GPUs}
	for i := range uint64(steps) {
		t.Times = append(t.Times, s.Begin+(s.End-s.Begin)/(steps-1)*i)
		tensors, cached, before := i<<28, (i%4)<<26, uint64(1<<30)
		row.Tensors, row.Cached, row.Before = append(row.Tensors, tensors), append(row.Cached, cached), append(row.Before, before)
		row.Usage = append(row.Usage, tensors+cached+before)
		row.Driver, row.Rounding, row.Host = append(row.Driver, 0), append(row.Rounding, 0), append(row.Host, 64<<20)
	}
	t.Rows = []timeline.Row{row}
	t.Marks = []timeline.Mark{
		{Time: s.Begin, Kind: timeline.Began},
		{Time: t.Times[5], Kind: timeline.Large, Size: 3 << 30, Stack: 6, API: "cudaMalloc"},
		{Time: t.Times[20], Kind: timeline.OutOfMemory, Size: 2 << 30, Stack: 1, API: "torch"},
	}
	return t
}

func TorchSizes() *timeline.Sizes {
	s := &timeline.Sizes{}
	s.Driver[21], s.Driver[24] = timeline.Bucket{Count: 3, Bytes: 6 << 20}, timeline.Bucket{Count: 90, Bytes: 1800 << 20}
	s.Tensors[9], s.Tensors[20] = timeline.Bucket{Count: 100_000, Bytes: 60 << 20}, timeline.Bucket{Count: 5, Bytes: 7 << 20}
	return s
}
