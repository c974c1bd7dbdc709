// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"path"
	"slices"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// nameRule is one row of the table of those who allocate from CUDA for themselves: whose memory a
// frame shows, and what of it. A frame fits if it fits all expressions that are not nil.
type nameRule struct {
	kind     Kind
	name     string             // as people call the library
	part     string             // what the memory is in the library: "communicators"; "" if the frame shows only the library
	of       []string           // names of libraries that this one calls: where it is their caller, their memory is this one's
	library  *lazyregexp.Regexp // base name of the mapped file, or its path
	file     *lazyregexp.Regexp // source file, of Python
	function *lazyregexp.Regexp // demangled
	example  callstack.Frame
	proof    string // the program that shows the rule on the real library, or what it was compared with: see docs/names.md
}

// The programs that prove rules.
const (
	nvidia = "testdata/names/libraries.py"    // on NVIDIA's libraries
	ranks  = "testdata/names/ranks.py"        // on NCCL, by two ranks
	static = "testdata/names/nccl_static.c"   // on NCCL, linked into a program
	llama  = "testdata/names/llama.py"        // on llama.cpp
	ggml   = "testdata/names/ggml.py"         // on whisper.cpp's ggml, linked into an addon of Node
	onnx   = "testdata/names/onnx.py"         // on ONNX Runtime
	ptx    = "testdata/names/numba_module.py" // on Numba
	pycuda = "testdata/names/pycuda_arrays.py"
	torch  = "testdata/realtorch/backends.py"
	numba  = "testdata/holders/numba_arrays.py"
	asked  = "imports of ONNX Runtime" // see TestNamesFitWhatONNXRuntimeImports
)

func mapped(file, function string) callstack.Frame {
	if function == "" {
		function = file + "+0x1000"
	}
	return callstack.Frame{Function: function, Mapping: &callstack.Mapping{Path: "/usr/lib/" + file}}
}

func native(function string) callstack.Frame { return callstack.Frame{Function: function} }

func script(file, function string) callstack.Frame {
	return callstack.Frame{Function: function, File: "/opt/venv/lib/python3.11/site-packages/" + file, Line: 1, Python: true}
}

var re = lazyregexp.New

// ggml allocates for llama.cpp, and calls cuBLAS with a handle of its own.
var ofGGML = []string{"ggml"}

// nameRules are tried for each frame from the leaf on: see ownerOfStack. Of the rules that fit one
// frame, the first counts.
var nameRules = []nameRule{
	// llama.cpp, Ollama and others on ggml.
	{Weights, "llama.cpp", "", ofGGML, nil, nil, re(`(^|::)llama_model(_loader)?::load_|^llama_model_load`), native("llama_model::load_tensors(llama_model_loader&)"), llama},
	{KVCache, "llama.cpp", "", ofGGML, nil, nil, re(`(^|::)llama_(kv_cache|memory)\w*(::|_init)`), native("llama_kv_cache::llama_kv_cache(llama_model const&, ggml_type)"), llama},
	{Library, "ggml compute buffers", "", ofGGML, nil, nil, re(`^ggml_(gallocr|backend_sched)_(reserve|alloc)`), native("ggml_gallocr_reserve_n"), llama},
	{Library, "ggml pool", "", ofGGML, nil, nil, re(`^ggml_cuda_pool\w*::`), native("ggml_cuda_pool_vmm::alloc(unsigned long, unsigned long*)"), llama},

	{Library, "NCCL", "communicators", nil, nil, nil, re(`^p?ncclComm(Init|Split|Shrink|Grow)`), native("ncclCommInitRankConfig"), ranks},
	{Library, "NCCL", "registered buffers", nil, nil, nil, re(`^p?nccl(MemAlloc|Comm(Window)?Register)`), native("ncclMemAlloc"), nvidia},
	{Library, "NCCL", "collectives", nil, nil, nil, re(`^p?nccl(All|Reduce|Broadcast|Bcast|Send|Recv|Gather|Scatter|Group)`), native("ncclAllReduce"), ranks},
	{Library, "NCCL", "", nil, re(`^libnccl`), nil, nil, mapped("libnccl.so.2", ""), nvidia},
	{Library, "NCCL", "", nil, nil, nil, re(`^p?nccl[A-Z]`), native("ncclGetUniqueId"), static},
	{Library, "NVSHMEM", "", nil, re(`^libnvshmem`), nil, nil, mapped("libnvshmem_host.so.3", ""), "names of files"},
	{Library, "cuBLAS", "handles", nil, re(`^libcublas`), nil, re(`^cublas(Lt|Xt)?Create`), mapped("libcublas.so.12", "cublasCreate_v2"), nvidia},
	{Library, "cuBLAS", "", nil, re(`^libcublas`), nil, nil, mapped("libcublasLt.so.12", ""), nvidia},
	{Library, "cuDNN", "handles", []string{"cuBLAS"}, re(`^libcudnn`), nil, re(`^cudnnCreate`), mapped("libcudnn.so.9", "cudnnCreate"), asked},
	{Library, "cuDNN", "", []string{"cuBLAS"}, re(`^libcudnn`), nil, nil, mapped("libcudnn_engines_precompiled.so.9", ""), asked},
	{Library, "cuFFT", "plans", nil, re(`^libcufft`), nil, re(`^cufft(Xt)?(Plan|MakePlan|SetWorkArea)`), mapped("libcufft.so.11", "cufftPlan1d"), nvidia},
	{Library, "cuFFT", "", nil, re(`^libcufft`), nil, nil, mapped("libcufft.so.11", ""), nvidia},
	{Library, "cuSOLVER", "handles", []string{"cuBLAS", "cuSPARSE"}, re(`^libcusolver`), nil, re(`^cusolver(Dn|Sp|Rf|Mg)Create`), mapped("libcusolver.so.11", "cusolverDnCreate"), nvidia},
	{Library, "cuSOLVER", "", []string{"cuBLAS", "cuSPARSE"}, re(`^libcusolver`), nil, nil, mapped("libcusolver.so.11", ""), nvidia},
	{Library, "cuSPARSE", "", nil, re(`^libcusparse`), nil, nil, mapped("libcusparse.so.12", ""), nvidia},
	{Library, "cuRAND", "generators", nil, re(`^libcurand`), nil, re(`^curand[A-Z]`), mapped("libcurand.so.10", "curandGenerateUniform"), nvidia},
	{Library, "cuRAND", "", nil, re(`^libcurand`), nil, nil, mapped("libcurand.so.10", ""), nvidia},
	{Library, "cuTENSOR", "", nil, re(`^libcutensor`), nil, nil, mapped("libcutensor.so.2", ""), "names of files"},
	{Library, "TensorRT", "execution contexts", []string{"cuBLAS", "cuDNN"}, nil, nil, re(`^nvinfer1::ICudaEngine::createExecutionContext`), native("nvinfer1::ICudaEngine::createExecutionContext()"), "headers of TensorRT"},
	{Library, "TensorRT", "engines", []string{"cuBLAS", "cuDNN"}, nil, nil, re(`^nvinfer1::IRuntime::deserializeCudaEngine`), native("nvinfer1::IRuntime::deserializeCudaEngine(void const*, unsigned long)"), "headers of TensorRT"},
	{Library, "TensorRT", "", []string{"cuBLAS", "cuDNN"}, re(`^lib(nvinfer|nvonnxparser|trt)`), nil, nil, mapped("libnvinfer.so.10", ""), asked},
	{Library, "NPP, nvJPEG", "", nil, re(`^lib(npp|nvjpeg)`), nil, nil, mapped("libnvjpeg.so.12", ""), nvidia},
	{Library, "DALI", "", nil, re(`^libdali`), nil, nil, mapped("libdali_operators.so", ""), "names of files"},
	{Library, "ONNX Runtime", "arena", nil, re(`^libonnxruntime`), nil, re(`BFCArena::|CUDAAllocator::`), mapped("libonnxruntime_providers_cuda.so", "onnxruntime::BFCArena::Extend(unsigned long)"), "source of ONNX Runtime"},
	{Library, "ONNX Runtime", "", []string{"cuBLAS", "cuDNN"}, re(`^libonnxruntime`), nil, nil, mapped("libonnxruntime_providers_cuda.so", ""), onnx},
	{Library, "TensorFlow", "region", nil, re(`^libtensorflow|^_pywrap_tensorflow`), nil, re(`BFCAllocator::`), mapped("libtensorflow_framework.so.2", "tsl::BFCAllocator::Extend(unsigned long, unsigned long)"), "source of TensorFlow"},
	{Library, "TensorFlow", "", []string{"cuBLAS", "cuDNN"}, re(`^libtensorflow|^_pywrap_tensorflow`), nil, nil, mapped("libtensorflow_cc.so.2", ""), "source of TensorFlow"},
	{Library, "JAX, XLA", "region", nil, re(`^xla_(ext|cuda_plugin)|^libxla|^pjrt_.*(cuda|gpu)`), nil, re(`BFCAllocator::`), mapped("xla_cuda_plugin.so", "tsl::BFCAllocator::Extend(unsigned long, unsigned long)"), "source of TensorFlow"},
	{Library, "JAX, XLA", "", []string{"cuBLAS", "cuDNN"}, re(`^xla_(ext|cuda_plugin)|^libxla|^pjrt_.*(cuda|gpu)`), nil, nil, mapped("xla_cuda_plugin.so", ""), "names of files"},
	{Library, "RAPIDS", "pool", nil, nil, nil, re(`rmm::mr::(detail::)?(pool|arena)_memory_resource`), native("rmm::mr::detail::pool_memory_resource_impl::expand_pool(unsigned long, rmm::mr::detail::coalescing_free_list&, rmm::cuda_stream_view)"), "source of RMM"},
	{Library, "RAPIDS", "", []string{"cuBLAS", "cuSOLVER", "cuSPARSE"}, re(`^lib(rmm|raft|cudf|cuml|cugraph)|/(pylib)?rmm/`), nil, nil, mapped("librmm.so", ""), "source of RMM"},
	{Library, "Faiss", "temporary memory", []string{"cuBLAS"}, re(`^libfaiss|^_swigfaiss`), nil, re(`^faiss::gpu::StackDeviceMemory::`), mapped("libfaiss.so", "faiss::gpu::StackDeviceMemory::Stack::Stack(faiss::gpu::GpuResources*, int, unsigned long)"), "source of Faiss"},
	{Library, "Faiss", "", []string{"cuBLAS"}, re(`^libfaiss|^_swigfaiss`), nil, nil, mapped("libfaiss.so", ""), "source of Faiss"},
	{Library, "ggml", "", nil, re(`^libggml|^libllama`), nil, nil, mapped("libggml-cuda.so", ""), llama},
	{Library, "ggml", "", nil, nil, nil, re(`^ggml_`), native("ggml_backend_cuda_init"), ggml},

	// Code that Python generates and loads as modules, and pools of Python's.
	{Library, "Triton", "", nil, nil, re(`(^|/)triton/(runtime|compiler|backends)/`), nil, script("triton/compiler/compiler.py", "CompiledKernel._init_handles"), "source of Triton"},
	{Library, "TorchInductor", "", []string{"Triton"}, nil, re(`(^|/)torch/_inductor/|(^|/)torchinductor_`), nil, script("torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.run"), "source of PyTorch 2.6"},
	{Library, "CuPy", "pool", nil, re(`/cupy/cuda/memory\.`), nil, nil, mapped("cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so", ""), "source of CuPy"},
	{Library, "CuPy", "", []string{"cuBLAS", "cuFFT", "cuSOLVER", "cuSPARSE", "cuRAND"}, nil, re(`(^|/)cupy/`), nil, script("cupy/_creation/basic.py", "zeros"), "source of CuPy"},
	{Library, "PyCUDA", "", nil, re(`/pycuda/_driver\.`), nil, nil, mapped("pycuda/_driver.cpython-311-x86_64-linux-gnu.so", ""), pycuda},
	{Library, "Numba", "arrays", nil, nil, re(`(^|/)numba/cuda/`), re(`memalloc|device_array|_memory_allocator`), script("numba/cuda/cudadrv/driver.py", "Context.memalloc"), numba},
	{Library, "Numba", "", nil, nil, re(`(^|/)numba/cuda/`), nil, script("numba/cuda/cudadrv/driver.py", "Context.create_module_ptx"), ptx},

	// A pluggable allocator or the backend cudaMallocAsync: no tensors are reported.
	{Torch, "", "", nil, re(`^libc10_cuda\.so`), nil, nil, mapped("libc10_cuda.so", ""), torch},
	{Torch, "", "", nil, nil, nil, re(`CUDAPluggableAllocator`), native("torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, signed char, CUstream_st*)"), torch},
}

// idles is how much of each pool of a library is idle, by name and part. Where a pool is not told
// from the rest of its library, the rest has it.
var idles = map[[2]string]Idle{
	{"ggml pool", ""}:             IdleBetween, // by its source: an operation returns what it took
	{"ONNX Runtime", ""}:          IdleRunning, // files without symbols
	{"ONNX Runtime", "arena"}:     IdleRunning,
	{"TensorFlow", "region"}:      IdleUnknown,
	{"JAX, XLA", "region"}:        IdleUnknown,
	{"RAPIDS", "pool"}:            IdleUnknown,
	{"Faiss", "temporary memory"}: IdleUnknown,
	{"CuPy", "pool"}:              IdleUnknown,
}

// stackOwner is whose memory a stack allocates.
type stackOwner struct {
	*nameRule        // nil if no rule fits
	part      string // the rule's, or the name of the library that it has the memory from
	last      int    // the frame nearest to the root that a rule fits
}

// ownerOfStack returns whose memory a stack allocates. The frame nearest to the leaf that a rule
// fits decides, unless its callers know better: what the library has it for, or a library that
// calls it.
func ownerOfStack(stack []callstack.Frame, known fittingRules) (o stackOwner) {
	for i := range stack {
		r := known.of(&stack[i])
		switch {
		case r == nil:
			continue
		case o.nameRule == nil, r.name == o.name && o.nameRule.part == "" && r.part != "" && r.kind == o.kind:
			o.nameRule, o.part = r, r.part
		case slices.Contains(r.of, o.name):
			part := r.part
			if part == "" && (r.library != nil || r.file != nil) {
				part = o.name
			}
			o.nameRule, o.part = r, part
		}
		o.last = i
	}
	return o
}

// fittingRules remembers which rule fits a frame: stacks have most of their frames in common, and
// each rule is one to three regular expressions.
type fittingRules map[ruleKey]*nameRule

// ruleKey is what decides which rule fits a frame.
type ruleKey struct {
	function, file, library string
	python                  bool
}

// maxFitting bounds the frames of fittingRules; some 30 MB with names of 300 bytes.
const maxFitting = 1 << 16

func (known fittingRules) of(f *callstack.Frame) *nameRule {
	if f.Mark {
		return nil
	}
	key := ruleKey{function: f.Function, file: f.File, python: f.Python}
	if f.Mapping != nil {
		key.library = f.Mapping.Path
	}
	r, ok := known[key]
	if !ok {
		r = nameRuleOf(f)
		if len(known) >= maxFitting {
			clear(known)
		}
		known[key] = r
	}
	return r
}

func nameRuleOf(f *callstack.Frame) *nameRule {
	if f.Mark {
		return nil
	}
	for i := range nameRules {
		if r := &nameRules[i]; r.fits(f) {
			return r
		}
	}
	return nil
}

func (r *nameRule) fits(f *callstack.Frame) bool {
	switch {
	case f.Python != (r.file != nil):
		return false
	case r.library != nil && (f.Mapping == nil || !r.library.MatchString(path.Base(f.Mapping.Path)) && !r.library.MatchString(f.Mapping.Path)):
		return false
	case r.file != nil && !r.file.MatchString(f.File):
		return false
	}
	return r.function == nil || r.function.MatchString(f.Function)
}
