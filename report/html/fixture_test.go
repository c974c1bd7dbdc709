// SPDX-License-Identifier: Apache-2.0

package html

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

type stackMap map[uint64][]callstack.Frame

func (m stackMap) Stack(id uint64) []callstack.Frame { return m[id] }

const (
	mib    = uint64(1) << 20
	gib    = uint64(1) << 30
	second = uint64(time.Second)
	begin  = 1000 * second
	gpu0   = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	gpu1   = "GPU-5e6f7a8b-0000-0000-0000-000000000000"
	tensor = "c10::reportMemoryUsageToProfiler"
)

func library(path string) *callstack.Mapping {
	return &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/" + path, Start: 0x1000, Limit: 0x9000000}
}

var (
	torchCUDA = library("torch/lib/libtorch_cuda.so")
	torchCPU  = library("torch/lib/libtorch_cpu.so")
	c10       = library("torch/lib/libc10_cuda.so")
	cudart    = library("nvidia/cuda_runtime/lib/libcudart.so.12")
	nccl      = library("nvidia/nccl/lib/libnccl.so.2")
	libc      = &callstack.Mapping{Path: "/lib/x86_64-linux-gnu/libc.so.6", Start: 0x26000, Limit: 0x180000}
	infer     = &callstack.Mapping{Path: "/srv/infer/bin/infer", Start: 0x1000, Limit: 0x9000}
)

func native(name string, m *callstack.Mapping) callstack.Frame {
	return callstack.Frame{Function: name, SystemName: name, Mapping: m, Address: 0x1010}
}

func python(function, file string, line int) callstack.Frame {
	return callstack.Frame{Function: function, File: file, Line: line, Python: true}
}

// ofTensor is the stack of an operator called from Python.
func ofTensor(op string, callers ...callstack.Frame) []callstack.Frame {
	return append([]callstack.Frame{
		native(tensor, c10), native("at::detail::empty_generic", torchCPU), native("at::native::"+op, torchCUDA),
		python("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125),
	}, callers...)
}

func trainer(callers ...callstack.Frame) []callstack.Frame {
	return append(callers, python("Trainer.step", "/home/ada/llm/train.py", 42), python("Trainer.fit", "/home/ada/llm/train.py", 88),
		python("<module>", "/home/ada/llm/train.py", 120), native("__libc_start_call_main", libc))
}

func fixtureStacks() stackMap {
	attention := python("Attention.forward", "/home/ada/llm/model.py", 61)
	block := python("Block.forward", "/home/ada/llm/model.py", 88)
	model := python("Transformer.forward", "/home/ada/llm/model.py", 131)
	return stackMap{
		1: ofTensor("linear", trainer(attention, block, model)...),
		2: ofTensor("softmax", trainer(attention, block, model)...),
		3: ofTensor("linear", trainer(python("MLP.forward", "/home/ada/llm/model.py", 30), block, model)...),
		4: ofTensor("gelu", trainer(python("MLP.forward", "/home/ada/llm/model.py", 31), block, model)...),
		5: ofTensor("zeros_like", python("AdamW._init_group", "/opt/venv/lib/python3.11/site-packages/torch/optim/adamw.py", 130),
			python("Trainer.optimize", "/home/ada/llm/train.py", 53), python("Trainer.fit", "/home/ada/llm/train.py", 91), python("<module>", "/home/ada/llm/train.py", 120), native("__libc_start_call_main", libc)),
		6:  ofTensor("mul", trainer(python("Logger.keep", "/home/ada/llm/log.py", 17))...),
		7:  {native("at::native::mm_out_cuda", torchCUDA), native("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", torchCPU), native("torch::autograd::Engine::thread_main", torchCPU), native("start_thread", libc)},
		8:  append([]callstack.Frame{native("cuMemAlloc_v2", cudart), native("cudaMalloc", cudart), native("c10::cuda::CUDACachingAllocator::alloc_block", c10)}, ofTensor("linear", trainer(attention, block, model)...)[1:]...),
		9:  {native("cuMemCreate", cudart), native("ncclCuMemAlloc", nccl), native("ncclCommInitRankConfig", nccl), python("init_process_group", "/home/ada/llm/dist.py", 12), python("<module>", "/home/ada/llm/train.py", 101)},
		10: {native("cudaHostAlloc", cudart), native("at::cuda::CachingHostAllocator_impl::allocate", torchCUDA), python("Loader.next", "/home/ada/llm/data.py", 63), python("<module>", "/home/ada/llm/train.py", 115)},
		11: {native("cuMemAlloc_v2", cudart), {Function: "Pool::take(unsigned long)", File: "src/pool.h", Line: 18, Mapping: infer, Address: 0x1500, Inlined: true}, {Function: "handle(Request const&)", File: "src/server.cc", Line: 207, Mapping: infer, Address: 0x1500}, {Function: "main", File: "src/server.cc", Line: 300, Mapping: infer, Address: 0x1800}, native("__libc_start_main", libc)},
		12: {native("cudaMalloc", cudart), native("libcublasLt.so.12+0x30c0", library("nvidia/cublas/lib/libcublasLt.so.12")), {Function: "[truncated: too deep]", Mark: true}},
	}
}

const moments = 121 // one a second and the beginning

// curve is what a site holds at each moment.
type curve func(t int) uint64

func steady(size, from uint64) curve {
	return func(t int) uint64 {
		if uint64(t) < from {
			return 0
		}
		return size
	}
}

// saw is what comes and goes with each step of training.
func saw(size uint64, period int) curve {
	return func(t int) uint64 {
		if t < 6 {
			return 0
		}
		return size / uint64(period) * uint64(t%period) &^ 511
	}
}

func rising(rate uint64) curve { return func(t int) uint64 { return rate * uint64(max(t-8, 0)) } }

// plan is one site of the fixture.
type plan struct {
	process int
	stack   uint64
	api     string
	kind    ledger.Kind
	device  int32
	objects uint64
	live    curve
	verdict report.SiteVerdict
}

var plans = []plan{
	{0, 6, tensor, ledger.Tensor, 0, 1120, rising(96 * mib), report.SiteVerdict{Class: "leaking", Text: "+5.63 GiB/min (5.60 to 5.65), 99 % never freed; loss kept with its graph; GPU full in 4m10s"}},
	{0, 5, tensor, ledger.Tensor, 0, 290, steady(9*gib, 12), report.SiteVerdict{Class: "steady", Text: "optimizer state, since 12s"}},
	{0, 1, tensor, ledger.Tensor, 0, 48, saw(8*gib, 7), report.SiteVerdict{Class: "steady", Text: "comes and goes with each step"}},
	{0, 2, tensor, ledger.Tensor, 0, 24, saw(5*gib, 7), report.SiteVerdict{Class: "steady", Text: "comes and goes with each step"}},
	{0, 3, tensor, ledger.Tensor, 0, 24, saw(3*gib, 7), report.SiteVerdict{Class: "steady", Text: "comes and goes with each step"}},
	{0, 4, tensor, ledger.Tensor, 0, 24, saw(2*gib, 7), report.SiteVerdict{}},
	{0, 7, tensor, ledger.Tensor, 0, 148, steady(4*gib, 9), report.SiteVerdict{Class: "steady", Text: "gradients"}},
	{1, 1, tensor, ledger.Tensor, 1, 48, saw(8*gib, 7), report.SiteVerdict{Class: "steady", Text: "comes and goes with each step"}},
	{1, 5, tensor, ledger.Tensor, 1, 290, steady(9*gib, 12), report.SiteVerdict{Class: "steady", Text: "optimizer state, since 12s"}},
	{1, 7, tensor, ledger.Tensor, 1, 148, steady(4*gib, 9), report.SiteVerdict{}},
	{0, 9, "cuMemCreate", ledger.VMM, 0, 6, steady(768*mib, 3), report.SiteVerdict{Class: "one-off"}},
	{1, 9, "cuMemCreate", ledger.VMM, 1, 6, steady(768*mib, 3), report.SiteVerdict{Class: "one-off"}},
	{0, 12, "cudaMalloc", ledger.Device, 0, 2, steady(72*mib, 5), report.SiteVerdict{Class: "cache", Text: "workspace"}},
	{2, 11, "cuMemAlloc_v2", ledger.Device, 0, 310, func(t int) uint64 { return (1536 + uint64(320*math.Sin(float64(t)/9))) * mib }, report.SiteVerdict{Class: "growing", Text: "may be warming up"}},
	{0, 10, "cudaHostAlloc", ledger.Pinned, 0, 5, steady(640*mib, 4), report.SiteVerdict{Class: "cache", Text: "pinned buffers of the data loader"}},
}

const cacheSlack = 1300 * mib // what segments hold at least beyond their tensors

// fixture is a training job of two ranks, one of which leaks until it runs out of memory, beside a
// server.
func fixture() Input {
	end := begin + (moments-1)*second
	tl := &timeline.Timeline{GPUs: []ledger.GPU{
		{Index: 0, UUID: gpu0, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 43 * gib},
		{Index: 1, UUID: gpu1, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 25 * gib},
	}, Processes: []ledger.Process{
		{PID: 4242, Comm: "python3", Begin: begin, Devices: []string{gpu0, gpu1}, Workload: ledger.Workload{Rank: "0", WorldSize: "2", Pod: "llama-0", Namespace: "ml"}},
		{PID: 4243, Comm: "python3", Begin: begin + second, Devices: []string{gpu0, gpu1}, Workload: ledger.Workload{Rank: "1", WorldSize: "2", Pod: "llama-0", Namespace: "ml"}},
		{PID: 5000, Comm: "infer", Begin: begin, Devices: []string{gpu1}},
	}}
	for t := range moments {
		tl.Times = append(tl.Times, begin+uint64(t)*second)
	}
	for i := range 3 {
		row := timeline.Row{Process: i, UUID: []string{gpu0, gpu1, gpu1}[i], Device: []int32{0, 1, 0}[i]}
		for range moments {
			row.Usage, row.Tensors, row.Cached, row.Driver = append(row.Usage, 0), append(row.Tensors, 0), append(row.Cached, 0), append(row.Driver, 0)
			row.Before, row.Unexplained, row.Host = append(row.Before, []uint64{22 * gib / 10, 420 * mib, 310 * mib}[i]), append(row.Unexplained, 0), append(row.Host, 0)
			row.Beyond = append(row.Beyond, 0)
			row.Rounding = append(row.Rounding, 0)
		}
		tl.Rows = append(tl.Rows, row)
	}
	s := &ledger.Snapshot{Host: "gpu-box-3", Begin: begin, End: end, Wall: time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC), Processes: tl.Processes, GPUs: tl.GPUs,
		Stats: ledger.Stats{Events: 90_000, Lost: 12, Stacks: 4000, NoStack: 3}, Warnings: []string{"/usr/lib/libbroken.so.1 is not ELF and was skipped"}}
	verdicts := map[[2]uint64]report.SiteVerdict{} // by process and stack
	for _, p := range plans {
		addPlan(tl, s, p, verdicts)
	}
	addTorch(tl, s)
	tl.Marks = []timeline.Mark{
		{Time: begin + second, Kind: timeline.Began, Process: 1},
		{Time: begin + 12*second, Kind: timeline.Large, Process: 0, Device: 0, Size: 9 * gib, Stack: 5, API: "cudaMalloc"},
		{Time: begin + 118*second, Kind: timeline.OutOfMemory, Process: 0, Device: 0, Size: 2 * gib, Stack: 1, API: "cudaMalloc"},
	}
	reporttest.WithPeaks(s)
	in := Input{Snapshot: s, Stacks: fixtureStacks(), Timeline: tl, Title: "llama-7 on gpu-box-3",
		Advice: []string{"/home/ada/llm/log.py:17 keeps each step's loss with its graph: keep loss.item() or loss.detach() instead"}}
	for i := range s.Sites {
		in.Verdicts = append(in.Verdicts, verdicts[[2]uint64{uint64(s.Sites[i].Process), s.Sites[i].Stack}])
	}
	return in
}

func addPlan(tl *timeline.Timeline, s *ledger.Snapshot, p plan, verdicts map[[2]uint64]report.SiteVerdict) {
	live := make([]uint64, moments)
	row := &tl.Rows[p.process]
	for t := range live {
		live[t] = p.live(t)
		switch {
		case p.kind.OnHost():
			row.Host[t] += live[t]
		case p.kind == ledger.Tensor:
			row.Tensors[t] += live[t]
		default:
			row.Driver[t] += live[t]
		}
	}
	x := ledger.Site{Process: p.process, Stack: p.stack, API: p.api, Kind: p.kind, Device: p.device, LiveObjects: p.objects,
		LiveBytes: live[moments-1], AllocObjects: 20 * p.objects, AllocBytes: 16 * live[moments-1], Oldest: begin + 9*second}
	s.Sites = append(s.Sites, x)
	tl.Sites = append(tl.Sites, timeline.Site{Site: x, Live: live})
	verdicts[[2]uint64{uint64(p.process), p.stack}] = p.verdict
}

// addTorch adds the segments of PyTorch's allocators, and NVML's figures.
func addTorch(tl *timeline.Timeline, s *ledger.Snapshot) {
	last := moments - 1
	for i := range 3 {
		row := &tl.Rows[i]
		foreign := row.Before[0]
		older := uint64(0)
		if i == 0 { // attached in the middle
			foreign, older = 310*mib, row.Before[0]-310*mib
		}
		if i < 2 {
			segments, cache := uint64(0), make([]uint64, moments)
			for t := range moments {
				segments = max(segments, (row.Tensors[t]+cacheSlack)&^(2*mib-1))
				cache[t] = segments - row.Tensors[t]
			}
			copy(row.Cached, cache)
			x := ledger.Site{Process: i, Stack: 8, API: "cudaMalloc", Kind: ledger.Device, Device: int32(i), LiveObjects: 31, LiveBytes: segments, AllocObjects: 33, AllocBytes: segments + 64*mib,
				Segment: true, Tensors: row.Tensors[last], Oldest: begin + 3*second}
			s.Sites = append(s.Sites, x)
			tl.Sites = append(tl.Sites, timeline.Site{Site: x, Live: cache})
			s.Tensors = append(s.Tensors, ledger.Tensors{Process: i, Device: int32(i), Allocated: row.Tensors[last] + older, Reserved: segments + older, Peak: segments, PeakTime: begin + 117*second,
				LiveObjects: 2000, LiveBytes: row.Tensors[last], AllocObjects: 90_000, AllocBytes: 300 * gib, Sampled: 700, Error: 96 * mib,
				Older: older, Segments: segments, Cached: cache[last], LargestFree: cache[last] / 2, Foreign: foreign})
		}
		before := row.Before[0]
		for t := range moments {
			more := int64(uint64(24+t/4)*mib) - []int64{0, 60, 10}[i]*int64(mib)
			row.Unexplained[t], row.Beyond[t] = uint64(max(more, 0)), uint64(max(-more, 0))
			row.Before[t] -= row.Beyond[t]
			row.Usage[t] = row.Tensors[t] + row.Cached[t] + row.Driver[t] + row.Before[t] + row.Unexplained[t]
		}
		s.Balances = append(s.Balances, ledger.Balance{Process: i, UUID: row.UUID, Device: row.Device, Usage: row.Usage[last], Peak: row.Usage[last], Baseline: before})
	}
}

// hostile is a process whose every name tries to get out of the data and into the page.
func hostile() Input {
	evil := "</script><script>document.title='owned'</script><!--\x1b[31m\u202e\u2028" + strings.Repeat("很<b>", 300)
	st := stackMap{1: {
		native("cudaMalloc", cudart),
		native(`"><img src=x onerror=alert(1)>`, &callstack.Mapping{Path: "/tmp/<b>{{script}}\n.so", Start: 1, Limit: 2}),
		python(evil, "/tmp/"+evil+".py", 1), python("__proto__", "constructor", 3), python("${alert(1)}`", "javascript:alert(1)", -5),
	}}
	s := &ledger.Snapshot{Host: evil, Begin: begin, End: begin + second, Wall: time.Unix(1_790_000_000, 0),
		Processes: []ledger.Process{{PID: 666, Comm: "</script>\x07", Begin: begin, Workload: ledger.Workload{Job: evil, Pod: evil}}},
		GPUs:      []ledger.GPU{{UUID: "GPU-<i>" + evil, Name: evil, Total: gib}},
		Sites:     []ledger.Site{{Stack: 1, API: evil, Kind: ledger.Device, LiveBytes: mib, LiveObjects: 1, AllocBytes: mib, AllocObjects: 1}},
		Warnings:  []string{evil}}
	s.Walks = walksOf(evil, `"><img src=x onerror=alert(2)>`, "__proto__")
	s.Sites = append(s.Sites, ledger.Site{Stack: 1, API: tensor, Kind: ledger.Tensor, LiveBytes: mib, LiveObjects: 1, Holders: []ledger.SiteHolder{{Holder: 0, Bytes: mib}}})
	s.Processes = append(s.Processes, ledger.Process{PID: 667, Begin: begin})
	return Input{Snapshot: s, Stacks: st, Title: evil, Advice: []string{evil}, Verdicts: []report.SiteVerdict{{Class: evil, Text: evil}}}
}

// walksOf are walks with these names: of process 0 with a holder of 1 MiB and as much without one,
// and of process 1 in vain.
func walksOf(path, frame, container string) []ledger.Walked {
	w := ledger.Walked{Time: begin + second, Problems: []string{frame}, Held: []ledger.Held{{
		Holder: ledger.Holder{Path: path, Frames: []string{frame, path, container}, Also: []string{path, frame}, Container: container, Containers: 1, Entries: 7, Found: true},
		Bytes:  mib, Storages: 1, InMotion: 1,
	}}, Allocators: []ledger.WalkTotals{{Allocated: 2 * mib, Held: mib, Excess: 1}}}
	return []ledger.Walked{w, {Process: 1, Time: begin + second, Failure: frame}}
}

// tenThousand is what pages are measured by.
var tenThousand = sync.OnceValue(func() Input { return large(10_000, 40) })

// large has so many sites with stacks of so many frames, hardly two of them alike, over 600
// moments.
func large(sites, depth int) Input {
	const moments, files = 600, 400
	st := stackMap{}
	random := uint64(88172645463325252) // xorshift: the same each time
	next := func(n int) int {
		random ^= random << 13
		random ^= random >> 7
		random ^= random << 17
		return int(random % uint64(n))
	}
	functions := make([]callstack.Frame, 8000)
	for i := range functions {
		file := fmt.Sprintf("/home/ada/projects/llm/module_%d/part_%d.py", next(40), next(files))
		functions[i] = python(fmt.Sprintf("Class%d.method_%d_%x", next(900), i, next(1<<24)), file, 1+next(2000))
		if i%3 == 0 {
			functions[i] = native(fmt.Sprintf("at::native::(anonymous namespace)::kernel_%d<float, %d>(at::Tensor const&, long)", i, next(64)), torchCUDA)
		}
	}
	tl := &timeline.Timeline{Processes: []ledger.Process{{PID: 77, Comm: "python3", Begin: begin, Devices: []string{gpu0}}}, GPUs: []ledger.GPU{{UUID: gpu0, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 41 * gib}}}
	row := timeline.Row{UUID: gpu0, Usage: make([]uint64, moments), Tensors: make([]uint64, moments), Cached: make([]uint64, moments), Driver: make([]uint64, moments), Rounding: make([]uint64, moments), Before: make([]uint64, moments), Unexplained: make([]uint64, moments), Host: make([]uint64, moments)}
	for t := range moments {
		tl.Times = append(tl.Times, begin+uint64(t)*second)
	}
	s := &ledger.Snapshot{Host: "gpu-box-9", Begin: begin, End: tl.Times[moments-1], Wall: time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC), Processes: tl.Processes, GPUs: tl.GPUs}
	for i := range sites {
		stack := make([]callstack.Frame, depth)
		for d := range stack {
			outer := depth - 1 - d // stacks part on their way inwards
			if outer < depth/3 {
				stack[d] = functions[(outer*131+i%(1<<min(outer, 8)))%len(functions)]
			} else {
				stack[d] = functions[next(len(functions))]
			}
		}
		st[uint64(i+1)] = stack
		live := make([]uint64, moments)
		level := uint64(0)
		for t := range live {
			if next(4) == 0 {
				level = uint64(next(1<<14)) * 512
			}
			live[t] = level
			row.Driver[t] += level
		}
		x := ledger.Site{Stack: uint64(i + 1), API: "cudaMalloc", Kind: ledger.Device, LiveBytes: level, LiveObjects: uint64(1 + next(900)), AllocBytes: level * uint64(1+next(40)), AllocObjects: uint64(900 + next(9000)), Oldest: begin + second}
		s.Sites = append(s.Sites, x)
		tl.Sites = append(tl.Sites, timeline.Site{Site: x, Live: live})
	}
	copy(row.Usage, row.Driver)
	tl.Rows = []timeline.Row{row}
	s.Balances = []ledger.Balance{{UUID: gpu0, Usage: row.Usage[moments-1]}}
	return Input{Snapshot: s, Stacks: st, Timeline: tl, Title: "ten thousand sites"}
}
