// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

const mib = reporttest.MiB

func TestEachNameRuleFitsItsExample(t *testing.T) {
	for i := range nameRules {
		r := &nameRules[i]
		if got := nameRuleOf(&r.example); got != r {
			t.Errorf("%s %s: its example %+v fits %+v", r.name, r.part, r.example, got)
		}
	}
	for _, f := range []callstack.Frame{mapped("libcuda.so.1", ""), mapped("libcudart.so.12", ""), native("main"), native("nccl"), script("train.py", "main"), {Function: "ncclX", Mark: true}} {
		if got := nameRuleOf(&f); got != nil {
			t.Errorf("%+v fits %s", f, got.name)
		}
	}
}

// TestRulesAreTriedOnceForEachFrame: and the second answer is the first, with bounded memory.
func TestRulesAreTriedOnceForEachFrame(t *testing.T) {
	known := fittingRules{}
	for range 2 {
		for i := range nameRules {
			if r := &nameRules[i]; known.of(&r.example) != r {
				t.Errorf("%s %s: its example fits another rule", r.name, r.part)
			}
		}
		if r := known.of(&callstack.Frame{Function: "ncclMemAlloc", Mark: true}); r != nil {
			t.Errorf("a mark fits %s", r.name)
		}
		if r := known.of(&callstack.Frame{Function: "ncclMemAlloc", Python: true}); r != nil {
			t.Errorf("a Python function fits %s", r.name)
		}
	}
	if n := len(known); n == 0 || n > len(nameRules)+1 {
		t.Errorf("%d frames are remembered for %d rules", n, len(nameRules))
	}
	for i := range maxFitting {
		known[ruleKey{function: strconv.Itoa(i)}] = nil
	}
	if known.of(&callstack.Frame{Function: "main"}); len(known) > maxFitting {
		t.Errorf("%d frames are remembered", len(known))
	}
}

func TestCallersShowWhatALibraryAllocatesFor(t *testing.T) {
	cudart, main := native("cudaMalloc"), native("main")
	ggml := func(caller string) []callstack.Frame {
		return []callstack.Frame{cudart, mapped("libggml-cuda.so", ""), native("ggml_backend_buft_alloc_buffer"), native(caller), main}
	}
	type want struct {
		kind       Kind
		name, part string
	}
	known := fittingRules{}
	for _, c := range []struct {
		stack []callstack.Frame
		want
	}{
		{ggml("llama_model::load_tensors(llama_model_loader&)"), want{Weights, "llama.cpp", ""}},
		{ggml("llama_kv_cache_init(llama_kv_cache&, llama_model const&)"), want{KVCache, "llama.cpp", ""}},
		{ggml("llama_kv_cache_unified::llama_kv_cache_unified(llama_model const&)"), want{KVCache, "llama.cpp", ""}},
		{ggml("ggml_backend_sched_reserve"), want{Library, "ggml compute buffers", ""}},
		{ggml("ggml_cuda_pool_leg::alloc(unsigned long, unsigned long*)"), want{Library, "ggml pool", ""}},
		{ggml("llama_context::llama_context(llama_model const&, llama_context_params)"), want{Library, "ggml", ""}},
		{ggml("void ggml_cuda_op_mul_mat<float>(ggml_backend_cuda_context&, ggml_tensor*)"), want{Library, "ggml", ""}},
		{[]callstack.Frame{cudart, mapped("libcublasLt.so.12", ""), mapped("libcublas.so.12", "cublasCreate_v2"), mapped("libggml-cuda.so", ""), native("llama_decode"), main}, want{Library, "cuBLAS", "handles"}},
		{[]callstack.Frame{cudart, mapped("libcublasLt.so.12", ""), mapped("libcublas.so.12", "cublasCreate_v2"), mapped("libcusolver.so.11", "cusolverDnCreate"), main}, want{Library, "cuSOLVER", "handles"}},
		{[]callstack.Frame{cudart, mapped("libnccl.so.2", ""), mapped("libnccl.so.2", "ncclCommInitRankConfig"), main}, want{Library, "NCCL", "communicators"}},
		{[]callstack.Frame{cudart, mapped("libnccl.so.2", ""), main}, want{Library, "NCCL", ""}},
		{[]callstack.Frame{cudart, script("triton/compiler/compiler.py", "CompiledKernel._init_handles"), script("torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.run")}, want{Library, "TorchInductor", "Triton"}},
		{[]callstack.Frame{cudart, mapped("libcublas.so.12", "cublasCreate_v2"), mapped("libonnxruntime_providers_cuda.so", ""), mapped("libonnxruntime.so.1", ""), main}, want{Library, "ONNX Runtime", "cuBLAS"}},
		{[]callstack.Frame{cudart, mapped("libnvinfer.so.10", ""), native("nvinfer1::ICudaEngine::createExecutionContext()"), main}, want{Library, "TensorRT", "execution contexts"}},
		{[]callstack.Frame{cudart, mapped("cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so", ""), script("cupy/_creation/basic.py", "zeros"), main}, want{Library, "CuPy", "pool"}},
		{[]callstack.Frame{cudart, mapped("memory.cpython-312-x86_64-linux-gnu.so", ""), native("rmm::mr::pool_memory_resource<rmm::mr::cuda_memory_resource>::expand_pool(unsigned long)"), main}, want{Library, "RAPIDS", "pool"}},
		{[]callstack.Frame{cudart, mapped("libfaiss.so", "faiss::gpu::StandardGpuResourcesImpl::allocMemory(faiss::gpu::AllocRequest const&)"), mapped("libfaiss.so", "faiss::gpu::StackDeviceMemory::Stack::Stack(faiss::gpu::GpuResources*, int, unsigned long)"), main}, want{Library, "Faiss", "temporary memory"}},
	} {
		if got := ownerOfStack(c.stack, known); got.nameRule == nil || (want{got.kind, got.name, got.part}) != c.want {
			t.Errorf("%+v: %+v", c.want, got)
		}
	}
}

// TestADriversObjectIsNoWeight: what the driver takes while a model loads is its context. A library
// in a program is not the user's line.
func TestADriversObjectIsNoWeight(t *testing.T) {
	own := func(function, file string, line int) callstack.Frame {
		return callstack.Frame{Function: function, SystemName: function, File: file, Line: line, Mapping: &callstack.Mapping{Path: "/home/ada/train"}}
	}
	capture := callstack.Frame{Function: "capture", File: "/home/ada/serve.py", Line: 31, Python: true}
	stacks := reporttest.StackMap{
		1: {native("cudaMalloc"), mapped("libggml-cuda.so", ""), native("llama_model::load_tensors(llama_model_loader&)"), {Function: "load", File: "/home/ada/serve.py", Line: 12, Python: true}},
		2: {native("cublasCreate_v2"), mapped("libcublas.so.12", "cublasCreate_v2"), {Function: "warm", File: "/home/ada/serve.py", Line: 20, Python: true}},
		// NCCL, linked into a program, and in a thread that it made there.
		3: {native("cudaMalloc"), own("ncclMemAlloc", "", 0), own("buffer", "/home/ada/train.c", 7), own("main", "/home/ada/train.c", 9)},
		4: {native("cudaMalloc"), own("ncclInitKernelsForDevice(int, int)", "", 0), native("start_thread")},
		5: {native("cudaGraphInstantiate"), capture},
		6: {native("ioctl"), mapped("libcuda.so.1", ""), mapped("libcuda.so.1", "cuGraphUpload"), capture},
		7: {native("cudaGraphInstantiate"), mapped("libggml-cuda.so", "ggml_backend_cuda_graph_compute(ggml_backend*, ggml_cgraph*)"), capture},
	}
	d := divider{stacks: newStackReader(nil, stacks)}
	for _, c := range []struct {
		site ledger.Site
		want owner
	}{
		{ledger.Site{Stack: 1, Kind: ledger.Device, API: "cudaMalloc"}, owner{rowKey{Weights, "llama.cpp"}, "", "load (serve.py:12)"}},
		{ledger.Site{Stack: 1, Kind: ledger.Internal, API: "cudaMalloc"}, owner{rowKey{Context, ""}, "", "load (serve.py:12)"}},
		{ledger.Site{Stack: 2, Kind: ledger.Internal, API: "cuModuleLoadData"}, owner{rowKey{Library, "cuBLAS"}, driverObjects, "warm (serve.py:20)"}},
		{ledger.Site{Stack: 2, Kind: ledger.Internal, API: "cuDevicePrimaryCtxRetain"}, owner{rowKey{Context, ""}, "", "warm (serve.py:20)"}},
		{ledger.Site{Stack: 3, Kind: ledger.Device, API: "cudaMalloc"}, owner{rowKey{Library, "NCCL"}, "registered buffers", "buffer (train.c:7)"}},
		{ledger.Site{Stack: 4, Kind: ledger.Device, API: "cudaMalloc"}, owner{rowKey{Library, "NCCL"}, "", ""}},
		{ledger.Site{Stack: 2, Kind: ledger.Graph, API: "cuGraphLaunch"}, owner{rowKey{Graphs, ""}, "alloc nodes", "warm (serve.py:20)"}},
		{ledger.Site{Stack: 5, Kind: ledger.Internal, API: "cudaGraphInstantiate"}, owner{rowKey{Graphs, ""}, "graph executables", "capture (serve.py:31)"}},
		{ledger.Site{Stack: 6, Kind: ledger.Internal, API: "ioctl"}, owner{rowKey{Graphs, ""}, "graph executables", "capture (serve.py:31)"}},
		{ledger.Site{Stack: 7, Kind: ledger.Internal, API: "cudaGraphInstantiate"}, owner{rowKey{Library, "ggml"}, "graph executables", "capture (serve.py:31)"}},
	} {
		if got := d.ownerOf(&c.site); got != c.want {
			t.Errorf("%+v: %+v", c.site, got)
		}
	}
}

// TestRowsAddUpToNVMLsFigure is the promise of the table: for each session of the tests, of every
// moment.
func TestRowsAddUpToNVMLsFigure(t *testing.T) {
	flood, floodStacks := reporttest.Flooded()
	paused := reporttest.Explained()
	paused.Tensors[0].Untraced = paused.Tensors[0].Older / 2
	for name, c := range map[string]struct {
		s  *ledger.Snapshot
		st callstack.Stacks
	}{
		"session": {reporttest.Snapshot(), reporttest.Stacks()}, "torch": {reporttest.TorchSnapshot(), reporttest.TorchStacks()},
		"earlier": {reporttest.Earlier(reporttest.TorchSnapshot()), reporttest.TorchStacks()}, "held": {reporttest.Held(), reporttest.HeldStacks()},
		"explained": {reporttest.Explained(), reporttest.HeldStacks()}, "caches": {reporttest.Caches(), reporttest.TorchStacks()},
		"stuck": {reporttest.Stuck(), reporttest.StuckStacks()}, "asleep": {reporttest.AsleepSnapshot(), reporttest.TorchStacks()},
		"kinds": {reporttest.KindsSnapshot(), reporttest.Stacks()}, "oom": {reporttest.OOMSnapshot(), reporttest.TorchStacks()},
		"flood": {flood, floodStacks}, "no stacks": {reporttest.Explained(), nil},
		"paused": {paused, reporttest.HeldStacks()},
	} {
		parts := c.s.Parts()
		list := Of(c.s, c.st)
		read := 0
		for i := range list {
			b := &list[i]
			checkRows(t, name, b)
			if !b.Read {
				continue
			}
			read++
			p := slices.IndexFunc(parts, func(x ledger.Part) bool { return x.Process == b.Process && x.UUID == b.UUID })
			if p < 0 || uint64(b.Bytes) != report.PartUsage(&parts[p]) {
				t.Errorf("%s: process %d has %d bytes: %+v", name, b.Process, b.Bytes, b.Rows)
			}
		}
		if read == 0 && len(parts) > 0 {
			t.Errorf("%s: no balance", name)
		}
	}
}

func checkRows(t *testing.T, name string, b *Balance) {
	t.Helper()
	var sum int64
	for i := range b.Rows {
		r := &b.Rows[i]
		sum += r.Bytes
		var pieces uint64
		for _, p := range r.Pieces {
			pieces += p.Bytes
		}
		if len(r.Pieces) > 0 && int64(pieces) != r.Bytes || r.Bytes < 0 || int64(max(r.ByHolders, r.ByStacks)) > max(r.Bytes, 0) {
			t.Errorf("%s: row %+v", name, *r)
		}
		if r.Name() == "" || slices.Index(Kinds, r.Kind) < 0 {
			t.Errorf("%s: row %+v has no name", name, *r)
		}
	}
	if sum != b.Bytes {
		t.Errorf("%s: rows of %d bytes in a balance of %d", name, sum, b.Bytes)
	}
	if bar := b.Bar(60); b.Bytes > 0 && len(bar) != 60 {
		t.Errorf("%s: a bar of %d columns: %s", name, len(bar), bar)
	}
}

// books is a job that began before the attach with 100 MiB of weights and 50 MiB that nothing
// holds, and allocates since by stacks 1 (a forward pass), 2 (a backward pass) and 8 (a batch).
func books(walk func(w *ledger.Walk)) (*ledger.Snapshot, *ledger.Ledger) {
	l := ledger.New(ledger.Options{Begin: reporttest.Second})
	l.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: reporttest.Second})
	l.Tell(ledger.Devices{PID: 7, UUIDs: []string{"GPU-a"}})
	l.Tell(ledger.GPUs{{UUID: "GPU-a", Total: 1 << 34, Used: 1 << 30}})
	l.Tell(ledger.UsageReading{Time: reporttest.Second, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: 500 * mib}}})
	allocated, live := 150*mib, uint64(0)
	at := reporttest.Second
	apply := func(op ledger.Op, address, size, stack uint64) {
		at += 1000
		if op == ledger.Alloc {
			live += size
		} else {
			live -= size
		}
		l.Apply(&ledger.Event{Op: op, PID: 7, TID: 7, Kind: ledger.Tensor, Space: ledger.Blocks, Time: at, Address: address, Size: size, Stack: stack, API: "torch",
			Told: ledger.ToldAllocated | ledger.ToldLive, Allocated: allocated + live, Live: live, Reserved: 400 * mib})
	}
	l.Apply(&ledger.Event{Op: ledger.Allocator, PID: 7, TID: 7, Kind: ledger.Tensor, Space: ledger.Blocks, Time: at, Size: allocated, Handle: 400 * mib})
	for i, stack := range []uint64{1, 1, 2, 2, 8, 3} {
		apply(ledger.Alloc, 0x10000000*uint64(i+1), 10*mib, stack)
	}
	w := ledger.Walk{PID: 7, Time: at, Holders: []ledger.Holder{
		{Path: "model.*.weight", Found: true, Parts: modelpart.Bytes{modelpart.Weight: 1}},
		{Path: "model.*.weight.grad", Found: true, Parts: modelpart.Bytes{modelpart.Gradient: 1}},
		{Path: "loss (autograd graph)", Found: true, Parts: modelpart.Bytes{modelpart.Saved: 1}},
		{Path: "x", Found: true, Parts: modelpart.Bytes{modelpart.None: 1}},
	}, Storages: []ledger.Storage{
		{Address: 0x1000, Bytes: 100 * mib},
		{Address: 0x10000000, Bytes: 10 * mib, Block: 10 * mib, Holder: 2},
		{Address: 0x20000000, Bytes: 10 * mib, Block: 10 * mib, Holder: 1}, // of a forward pass, by its stack
		{Address: 0x30000000, Bytes: 10 * mib, Block: 10 * mib, Holder: 1},
		{Address: 0x50000000, Bytes: 10 * mib, Block: 10 * mib, Holder: 2}, // a batch that the graph has saved
		{Address: 0x60000000, Bytes: 10 * mib, Block: 10 * mib, Holder: 3},
	}}
	if walk != nil {
		walk(&w)
		l.Tell(ledger.WalkOpened{PID: 7, Time: at})
		l.Tell(w)
	}
	return l.Snapshot(at, reporttest.Snapshot().Wall), l
}

var bookStacks = reporttest.StackMap{
	1: {native("at::_ops::linear::call"), script("torch/nn/modules/linear.py", "Linear.forward"), script("torch/nn/modules/module.py", "Module._call_impl"),
		{Function: "Block.forward", File: "/home/ada/model.py", Line: 88, StartLine: 80, Python: true}, script("torch/nn/modules/module.py", "Module._call_impl")},
	2: {native("at::_ops::mm::call"), native("torch::autograd::generated::AddmmBackward0::apply(int)"), native("torch::autograd::Engine::thread_main(int)")},
	3: {native("at::_ops::mul_Tensor::call"), {Function: "main", File: "/home/ada/train.py", Line: 3, Python: true}},
	8: {native("at::_ops::_to_copy::call"), native("at::_ops::to_dtype_layout::call"), {Function: "main", File: "/home/ada/train.py", Line: 2, Python: true}},
}

func bytesOf(t *testing.T, s *ledger.Snapshot) (map[Kind]int64, *Balance) {
	t.Helper()
	list := Of(s, bookStacks)
	if len(list) != 1 || list[0].Bytes != 500*int64(mib) {
		t.Fatalf("%+v", list)
	}
	by := map[Kind]int64{}
	for _, r := range list[0].Rows {
		by[r.Kind] = r.Bytes / int64(mib)
	}
	return by, &list[0]
}

func TestHoldersDecideAndStacksFillTheRest(t *testing.T) {
	s, _ := books(func(*ledger.Walk) {})
	by, b := bytesOf(t, s)
	// By holders: 100 of weights, 20 of gradients, 10 of activations, 10 of an input that was
	// saved. By stacks: 10 of the backward pass that nothing holds. Neither: x, and 50 from before
	// the attach.
	for kind, want := range map[Kind]int64{Weights: 100, Gradients: 20, Backward: 10, Activations: 10, Inputs: 10, Tensors: 60} {
		if by[kind] != want {
			t.Errorf("%s: %d MiB, want %d", kind, by[kind], want)
		}
	}
	if b.Both != 30*mib || b.Same != 20*mib {
		t.Errorf("they agree on %d of %d", b.Same/mib, b.Both/mib)
	}
	i := slices.IndexFunc(b.Rows, func(r Row) bool { return r.Kind == Activations })
	if p := b.Rows[i].Pieces; len(p) != 1 || p[0].Module != "Block.forward (model.py:80)" {
		t.Errorf("%+v", p)
	}
	if notes := strings.Join(b.Notes(s), "\n"); !strings.Contains(notes, "agree on 66.7% of the 30.0 MiB") {
		t.Error(notes)
	}
}

func TestAgreementIsAWordOnlyOnWhatMatters(t *testing.T) {
	for _, c := range []struct {
		same, both uint64
		want       string
	}{
		{0, 0, ""}, {0, 4 * mib, ""}, {4 * mib, 4 * mib, ""},
		{0, 5 * mib, "they differ: holders decide for these 5.00 MiB."},
		{5 * mib, 5 * mib, "they agree: 5.00 MiB."},
		{50 * mib, 150 * mib, "agree on 33.3% of the 150 MiB"},
	} {
		b := Balance{Bytes: 1000 * int64(mib), Doubt: Doubt{Same: c.same, Both: c.both}}
		if got := b.agreeText(); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%d of %d MiB: %q, want %q", c.same/mib, c.both/mib, got, c.want)
		}
	}
}

func TestWithoutAWalkStacksDecide(t *testing.T) {
	s, _ := books(nil)
	by, b := bytesOf(t, s)
	for kind, want := range map[Kind]int64{Weights: 0, Gradients: 0, Backward: 20, Activations: 20, Inputs: 10, Tensors: 160} {
		if by[kind] != want {
			t.Errorf("%s: %d MiB, want %d", kind, by[kind], want)
		}
	}
	if notes := b.Notes(s); len(notes) != 2 || !strings.HasPrefix(notes[0], "No holders are known") || !strings.HasPrefix(notes[1], "Backward pass: ") {
		t.Error(notes)
	}
}

func TestCapturesOfOlderVersionsHaveNoParts(t *testing.T) {
	s, _ := books(func(w *ledger.Walk) {
		for i := range w.Holders {
			w.Holders[i].Parts = modelpart.Bytes{}
		}
	})
	by, b := bytesOf(t, s)
	if by[Weights] != 0 || by[Activations] != 20 || by[Backward] != 20 || by[Tensors] != 160 || b.Both != 0 {
		t.Errorf("%v, %d", by, b.Both)
	}
}

// TestAResultThatAVariableKeepsIsNoActivation: a walk found just what there is, and no graph has
// saved what a forward pass made. After another allocation, what the line made may be saved.
func TestAResultThatAVariableKeepsIsNoActivation(t *testing.T) {
	s, l := books(func(w *ledger.Walk) { w.Storages[2].Holder = 3 })
	if by, _ := bytesOf(t, s); by[Activations] != 10 || by[Tensors] != 70 {
		t.Errorf("at the walk: %v", by)
	}
	l.Apply(&ledger.Event{Op: ledger.Alloc, PID: 7, TID: 7, Kind: ledger.Tensor, Space: ledger.Blocks, Time: s.End + 1000, Address: 0x90000000, Size: 10 * mib, Stack: 1, API: "torch",
		Told: ledger.ToldAllocated | ledger.ToldLive, Allocated: 220 * mib, Live: 70 * mib, Reserved: 400 * mib})
	if by, _ := bytesOf(t, l.Snapshot(s.End+2000, s.Wall)); by[Activations] != 30 {
		t.Errorf("later: %v", by)
	}
}

// TestAMomentBeforeTheWalkIsOfThatMoment: what the walk found later is no figure of it.
func TestAMomentBeforeTheWalkIsOfThatMoment(t *testing.T) {
	s, _ := books(nil)
	_, l := books(func(*ledger.Walk) {})
	s.End -= 1000 // the last block is not there yet
	early := *s
	l.AddWalk(&early, 7)
	early.End -= reporttest.Second
	by, b := bytesOf(t, &early)
	if by[Weights] != 100 || by[Activations]+by[Gradients]+by[Backward]+by[Inputs]+by[Tensors] != 110 {
		t.Errorf("%v", by)
	}
	if notes := strings.Join(b.Notes(&early), "\n"); !strings.Contains(notes, "Holders were read 1.0s after this moment: they divide") {
		t.Error(notes)
	}
}

func TestPoolsOfCUDAGraphsAreNoCache(t *testing.T) {
	list := Of(reporttest.Caches(), nil)
	if len(list) != 1 {
		t.Fatal(list)
	}
	by := map[Kind]*Row{}
	for i := range list[0].Rows {
		by[list[0].Rows[i].Kind] = &list[0].Rows[i]
	}
	if g, c := by[Graphs], by[Cache]; g == nil || g.Bytes != 12*int64(mib) || c == nil || slices.ContainsFunc(c.Pieces, func(p Piece) bool { return p.Cache == report.CachePools }) {
		t.Errorf("%+v, %+v", g, c)
	}
}

// TestAPoolOfCUDAGraphsHasItsSizeAndTheLineThatCaptured: the line whose graphs it took most for.
func TestAPoolOfCUDAGraphsHasItsSizeAndTheLineThatCaptured(t *testing.T) {
	s := reporttest.Caches()
	stacks := reporttest.StackMap{}
	for i, line := range []int{20, 31, 44} {
		stacks[uint64(i+1)] = []callstack.Frame{native("cudaGraphInstantiate"), {Function: "capture", File: "/home/ada/serve.py", Line: line, Python: true}}
	}
	pool := [2]uint64{1, 0}
	piece := func() string {
		rows := Of(s, stacks)[0].Rows
		return rows[slices.IndexFunc(rows, func(r Row) bool { return r.Kind == Graphs })].Pieces[0].Name(Graphs)
	}
	if got, want := piece(), "CUDA graph 1 of 20.0 MiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.Caches[0].Origins = []ledger.PoolOrigin{{Pool: pool, Stack: 1, API: "cudaMalloc"}}
	if got, want := piece(), "CUDA graph 1 of 20.0 MiB: capture (serve.py:20)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, bytes := range []uint64{2, 3, 3} {
		s.Caches[0].Captures = append(s.Caches[0].Captures, ledger.PoolCapture{Pool: pool, Stack: 2 + bytes%2, Bytes: bytes << 20})
	}
	s.Caches[0].Captures = append(s.Caches[0].Captures, ledger.PoolCapture{Pool: pool, Device: 1, Stack: 2, Bytes: 9 << 20})
	if got, want := piece(), "CUDA graph 1 of 20.0 MiB: capture (serve.py:44)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWorkspacesAreThoseOfALibraryAStreamAndALine: the blocks of a stack that are on another stream
// than the main one are apart.
func TestWorkspacesAreThoseOfALibraryAStreamAndALine(t *testing.T) {
	line := callstack.Frame{Function: "forward", File: "/home/ada/serve.py", Line: 31, Python: true}
	stacks := reporttest.StackMap{
		1: {native("at::cuda::getNewWorkspace()"), native("at::cuda::getCurrentCUDABlasHandle()"), line},
		2: {native("libtorch_cuda.so+0x45e2bc73"), native("at::cuda::getCurrentCUDABlasHandle()"), {Function: "evaluate", File: "/home/ada/serve.py", Line: 50, Python: true}},
		3: {native("at::cuda::getCUDABlasLtWorkspace()"), line},
	}
	s := &ledger.Snapshot{
		Processes: []ledger.Process{{PID: 7}}, Tensors: []ledger.Tensors{{LiveBytes: 42 * mib, Allocated: 42 * mib, Reserved: 42 * mib}},
		Sites: []ledger.Site{
			{Kind: ledger.Tensor, Stack: 1, LiveBytes: 24 * mib, LiveObjects: 3},
			{Kind: ledger.Tensor, Stack: 2, LiveBytes: 8 * mib, LiveObjects: 1},
			{Kind: ledger.Tensor, Stack: 3, LiveBytes: 10 * mib, LiveObjects: 1},
		},
		Caches: []ledger.AllocatorCache{{Cache: caching.Cache{Arenas: []caching.ArenaCache{{}, {Arena: caching.Arena{Stream: 0x55}}, {Arena: caching.Arena{Stream: 0x77}}}},
			OnStreams: []ledger.StackStream{{Stack: 1, Stream: 0x55, Bytes: 8 * mib}, {Stack: 2, Stream: 0x77, Bytes: 8 * mib}}}},
	}
	var got []string
	for _, r := range Of(s, stacks)[0].Rows {
		for i := range r.Pieces {
			got = append(got, fmt.Sprintf("%s: %s %d", r.Kind, r.Pieces[i].Name(r.Kind), r.Pieces[i].Bytes/mib))
		}
	}
	want := []string{"workspaces: cuBLAS: forward (serve.py:31) 16", "workspaces: cuBLASLt: forward (serve.py:31) 10",
		"workspaces: cuBLAS on stream 1: forward (serve.py:31) 8", "workspaces: cuBLAS on stream 2: evaluate (serve.py:50) 8"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestTheIdlePartOfPoolsIsKnownOrSaidNotToBe: of libraries' pools by their rules, of the driver's
// by what it holds beyond live allocations.
func TestTheIdlePartOfPoolsIsKnownOrSaidNotToBe(t *testing.T) {
	stacks := reporttest.StackMap{
		1: {native("cudaMalloc"), native("ggml_cuda_pool_leg::alloc(unsigned long, unsigned long*)")},
		2: {native("cudaMalloc"), mapped("libonnxruntime_providers_cuda.so", "")},
		3: {native("cudaMalloc"), mapped("libonnxruntime_providers_cuda.so", ""), mapped("libcublas.so.12", "")},
		4: {native("cudaMalloc"), mapped("cupy/cuda/memory.so", "")},
		5: {native("cudaMalloc"), mapped("libcufft.so.11", "cufftPlan1d")},
	}
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}}}
	for stack := range stacks {
		s.Sites = append(s.Sites, ledger.Site{Kind: ledger.Device, Stack: stack, LiveBytes: mib, LiveObjects: 1, API: "cudaMalloc"})
	}
	b := Of(s, stacks)[0]
	want := []string{"Scratch memory of single operations, all of it idle between evaluations: ggml pool.", "How much of a pool is idle, vramprof explain -p PID reads from the process while it runs: ONNX Runtime.",
		"Pools of which the idle part is not known: CuPy (pool)."}
	if got := b.idleNotes(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	x := ledger.Part{Rounding: 40 * mib}
	for idle, want := range map[uint64][]Piece{
		0:        nil,
		30 * mib: {{Part: "idle in pools, at most", Bytes: 30 * mib}, {Part: "other rounding, at least", Bytes: 10 * mib}},
		90 * mib: {{Part: "idle in pools, at most", Bytes: 40 * mib}},
	} {
		rows := rowSet{}
		d := divider{s: &ledger.Snapshot{Balances: []ledger.Balance{{Idle: idle}}}}
		d.rounding(&part{Part: x}, rows)
		if r := rows.row(Rounding, ""); r.Bytes != 40*int64(mib) || !slices.Equal(r.Pieces, want) {
			t.Errorf("idle %d: %+v", idle, r)
		}
	}
}

func TestApportionAddsUp(t *testing.T) {
	for _, weights := range [][]uint64{{1}, {1, 1, 1}, {0, 3, 1 << 50}, {7, 0, 0, 9}, {1 << 60, 1 << 60, 1}} {
		for _, total := range []uint64{0, 1, 10, 12345, 1 << 45} {
			var sum uint64
			for i, n := range apportion(total, weights) {
				if sum += n; weights[i] == 0 && n > 0 {
					t.Errorf("%d gets %d", i, n)
				}
			}
			if sum != total {
				t.Errorf("%d of %v: %d", total, weights, sum)
			}
		}
	}
	if apportion(5, nil) != nil || apportion(5, []uint64{0}) != nil {
		t.Error("a total without weights")
	}
}

// TestAProcessWithoutAFigureOfNVMLHasABalance: NVML lists a process some time after its first
// allocation.
func TestAProcessWithoutAFigureOfNVMLHasABalance(t *testing.T) {
	s := &ledger.Snapshot{Processes: []ledger.Process{{PID: 7}, {PID: 8, End: 1}}, Sites: []ledger.Site{
		{Process: 0, Kind: ledger.Device, Device: 0, LiveBytes: 5, Stack: 1}, {Process: 0, Kind: ledger.Device, Device: 0, LiveBytes: 2, Stack: 2},
		{Process: 0, Kind: ledger.Device, Device: 1, LiveBytes: 3}, {Process: 0, Kind: ledger.Pinned, Device: 0, LiveBytes: 9}, {Process: 1, Kind: ledger.Device, LiveBytes: 4},
	}}
	st := reporttest.StackMap{1: {native("cuMemAlloc_v2"), mapped("libcublas.so.12", "cublasCreate_v2")}}
	list := Of(s, st)
	if len(list) != 2 || list[0].Bytes != 7 || list[1].Bytes != 3 || list[0].Read || list[0].Rows[0].Name() != "cuBLAS" || list[0].Rows[0].Bytes != 5 {
		t.Errorf("%+v", list)
	}
	for i := range list {
		checkRows(t, "no figure", &list[i])
	}
}

// TestACommandThatWasStartedHasNothingFromBeforeTheAttach: what it had first is its context.
func TestACommandThatWasStartedHasNothingFromBeforeTheAttach(t *testing.T) {
	s, _ := books(nil)
	before, _ := bytesOf(t, s)
	for i := range s.Processes {
		s.Processes[i].Begin = s.Begin + 1
	}
	started, _ := bytesOf(t, s)
	if before[Before] == 0 || started[Before] != 0 || started[Context] != before[Context]+before[Before] {
		t.Errorf("attached late %d and %d MiB, started %d and %d", before[Before], before[Context], started[Before], started[Context])
	}
}
