// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"path"
	"regexp"
	"slices"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// nameRule is one row of the table of those who allocate from CUDA for themselves: whose memory a
// frame shows, and what of it. A frame fits if it fits all expressions that are not nil.
type nameRule struct {
	kind     Kind
	name     string         // as people call the library
	part     string         // what the memory is in the library: "communicators"; "" if the frame shows only the library
	of       []string       // names of libraries that this one calls: where it is their caller, their memory is this one's
	library  *regexp.Regexp // base name of the mapped file
	file     *regexp.Regexp // source file, of Python
	function *regexp.Regexp // demangled
	example  callstack.Frame
	proof    string // the program that shows the rule on the real library: see docs/names.md; "" if none does
}

// The programs that prove rules.
const (
	nvidia = "testdata/names/libraries.py" // on NVIDIA's libraries
	llama  = "testdata/names/llama.py"     // on llama.cpp
	torch  = "testdata/realtorch/backends.py"
	numba  = "testdata/holders/numba_arrays.py"
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

var re = regexp.MustCompile

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

	{Library, "NCCL", "communicators", nil, nil, nil, re(`^p?ncclComm(Init|Split|Shrink|Grow)`), native("ncclCommInitRankConfig"), nvidia},
	{Library, "NCCL", "registered buffers", nil, nil, nil, re(`^p?nccl(MemAlloc|Comm(Window)?Register)`), native("ncclMemAlloc"), ""},
	{Library, "NCCL", "connections", nil, nil, nil, re(`^p?nccl(All|Reduce|Broadcast|Bcast|Send|Recv|Gather|Scatter|Group)`), native("ncclAllReduce"), ""},
	{Library, "NCCL", "", nil, re(`^libnccl`), nil, nil, mapped("libnccl.so.2", ""), nvidia},
	{Library, "NCCL", "", nil, nil, nil, re(`^p?nccl[A-Z]`), native("ncclGetUniqueId"), ""},
	{Library, "NVSHMEM", "", nil, re(`^libnvshmem`), nil, nil, mapped("libnvshmem_host.so.3", ""), ""},
	{Library, "cuBLAS", "handles", nil, re(`^libcublas`), nil, re(`^cublas(Lt|Xt)?Create`), mapped("libcublas.so.12", "cublasCreate_v2"), nvidia},
	{Library, "cuBLAS", "workspaces", nil, re(`^libcublas`), nil, re(`^cublas[A-Z]`), mapped("libcublas.so.12", "cublasGemmEx"), ""},
	{Library, "cuBLAS", "", nil, re(`^libcublas`), nil, nil, mapped("libcublasLt.so.12", ""), nvidia},
	{Library, "cuDNN", "handles", []string{"cuBLAS"}, re(`^libcudnn`), nil, re(`^cudnnCreate`), mapped("libcudnn.so.9", "cudnnCreate"), ""},
	{Library, "cuDNN", "", []string{"cuBLAS"}, re(`^libcudnn`), nil, nil, mapped("libcudnn_engines_precompiled.so.9", ""), ""},
	{Library, "cuFFT", "plans", nil, re(`^libcufft`), nil, re(`^cufft(Xt)?(Plan|MakePlan|SetWorkArea)`), mapped("libcufft.so.11", "cufftPlan1d"), nvidia},
	{Library, "cuFFT", "", nil, re(`^libcufft`), nil, nil, mapped("libcufft.so.11", ""), nvidia},
	{Library, "cuSOLVER", "handles", []string{"cuBLAS", "cuSPARSE"}, re(`^libcusolver`), nil, re(`^cusolver(Dn|Sp|Rf|Mg)Create`), mapped("libcusolver.so.11", "cusolverDnCreate"), nvidia},
	{Library, "cuSOLVER", "", []string{"cuBLAS", "cuSPARSE"}, re(`^libcusolver`), nil, nil, mapped("libcusolver.so.11", ""), nvidia},
	{Library, "cuSPARSE", "handles", nil, re(`^libcusparse`), nil, re(`^cusparseCreate$`), mapped("libcusparse.so.12", "cusparseCreate"), ""},
	{Library, "cuSPARSE", "", nil, re(`^libcusparse`), nil, nil, mapped("libcusparse.so.12", ""), ""},
	{Library, "cuRAND", "generators", nil, re(`^libcurand`), nil, re(`^curand[A-Z]`), mapped("libcurand.so.10", "curandGenerateUniform"), nvidia},
	{Library, "cuRAND", "", nil, re(`^libcurand`), nil, nil, mapped("libcurand.so.10", ""), nvidia},
	{Library, "cuTENSOR", "", nil, re(`^libcutensor`), nil, nil, mapped("libcutensor.so.2", ""), ""},
	{Library, "TensorRT", "execution contexts", []string{"cuBLAS", "cuDNN"}, re(`^lib(nvinfer|trt)`), nil, re(`[cC]reateExecutionContext|ExecutionContext::`), mapped("libnvinfer.so.10", "nvinfer1::ICudaEngine::createExecutionContext()"), ""},
	{Library, "TensorRT", "engines", []string{"cuBLAS", "cuDNN"}, re(`^lib(nvinfer|trt)`), nil, re(`[dD]eserializeCudaEngine|CudaEngine::`), mapped("libnvinfer.so.10", "nvinfer1::IRuntime::deserializeCudaEngine(void const*, unsigned long)"), ""},
	{Library, "TensorRT", "", []string{"cuBLAS", "cuDNN"}, re(`^lib(nvinfer|nvonnxparser|trt)`), nil, nil, mapped("libnvinfer.so.10", ""), ""},
	{Library, "NPP, nvJPEG", "", nil, re(`^lib(npp|nvjpeg)`), nil, nil, mapped("libnvjpeg.so.12", ""), ""},
	{Library, "DALI", "", nil, re(`^libdali`), nil, nil, mapped("libdali_operators.so", ""), ""},
	{Library, "ONNX Runtime", "arena", nil, re(`^libonnxruntime`), nil, re(`BFCArena::|CUDAAllocator::`), mapped("libonnxruntime_providers_cuda.so", "onnxruntime::BFCArena::Extend(unsigned long)"), ""},
	{Library, "ONNX Runtime", "", []string{"cuBLAS", "cuDNN"}, re(`^libonnxruntime`), nil, nil, mapped("libonnxruntime_providers_cuda.so", ""), ""},
	{Library, "TensorFlow", "region", nil, re(`^libtensorflow|^_pywrap_tensorflow`), nil, re(`BFCAllocator::`), mapped("libtensorflow_framework.so.2", "tsl::BFCAllocator::Extend(unsigned long, unsigned long)"), ""},
	{Library, "TensorFlow", "", []string{"cuBLAS", "cuDNN"}, re(`^libtensorflow|^_pywrap_tensorflow`), nil, nil, mapped("libtensorflow_cc.so.2", ""), ""},
	{Library, "JAX, XLA", "region", nil, re(`^xla_(ext|cuda_plugin)|^libxla`), nil, re(`BFCAllocator::`), mapped("xla_cuda_plugin.so", "tsl::BFCAllocator::Extend(unsigned long, unsigned long)"), ""},
	{Library, "JAX, XLA", "", []string{"cuBLAS", "cuDNN"}, re(`^xla_(ext|cuda_plugin)|^libxla`), nil, nil, mapped("xla_cuda_plugin.so", ""), ""},
	{Library, "RAPIDS", "pool", nil, re(`^lib(rmm|raft|cudf|cuml|cugraph)`), nil, re(`pool_memory_resource|arena_memory_resource`), mapped("librmm.so", "rmm::mr::detail::pool_memory_resource_impl::expand_pool(unsigned long)"), ""},
	{Library, "RAPIDS", "", []string{"cuBLAS", "cuSOLVER", "cuSPARSE"}, re(`^lib(rmm|raft|cudf|cuml|cugraph)`), nil, nil, mapped("librmm.so", ""), ""},
	{Library, "Faiss", "", []string{"cuBLAS"}, re(`^libfaiss|^_swigfaiss`), nil, nil, mapped("libfaiss.so", ""), ""},
	{Library, "ggml", "", nil, re(`^libggml|^libllama`), nil, nil, mapped("libggml-cuda.so", ""), llama},
	{Library, "ggml", "", nil, nil, nil, re(`^ggml_`), native("ggml_backend_cuda_init"), ""},

	// Code that Python generates and loads as modules, and pools of Python's.
	{Library, "Triton", "", nil, nil, re(`(^|/)triton/(runtime|compiler|backends)/`), nil, script("triton/compiler/compiler.py", "CompiledKernel._init_handles"), ""},
	{Library, "TorchInductor", "", []string{"Triton"}, nil, re(`(^|/)torch/_inductor/|(^|/)torchinductor_`), nil, script("torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.launch"), ""},
	{Library, "CuPy", "pool", nil, nil, nil, re(`^__pyx_\w*4cupy_4cuda_6memory_`), native("__pyx_f_4cupy_4cuda_6memory_22SingleDeviceMemoryPool__malloc"), ""},
	{Library, "CuPy", "", []string{"cuBLAS", "cuFFT", "cuSOLVER", "cuSPARSE", "cuRAND"}, nil, re(`(^|/)cupy/`), nil, script("cupy/cuda/memory.py", "alloc"), ""},
	{Library, "Numba", "arrays", nil, nil, re(`(^|/)numba/cuda/`), re(`memalloc|device_array|_memory_allocator`), script("numba/cuda/cudadrv/driver.py", "Context.memalloc"), numba},
	{Library, "Numba", "", nil, nil, re(`(^|/)numba/cuda/`), nil, script("numba/cuda/cudadrv/driver.py", "Context.create_module_ptx"), ""},

	// A pluggable allocator or the backend cudaMallocAsync: no tensors are reported.
	{Torch, "", "", nil, re(`^libc10_cuda\.so`), nil, nil, mapped("libc10_cuda.so", ""), torch},
	{Torch, "", "", nil, nil, nil, re(`CUDAPluggableAllocator`), native("torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, signed char, CUstream_st*)"), ""},
}

// ownerOfStack returns whose memory a stack allocates; nil if no rule fits. The frame nearest to
// the leaf that a rule fits decides, unless its callers know better: what the library has it for,
// or a library that calls it.
func ownerOfStack(stack []callstack.Frame) (owner *nameRule) {
	for i := range stack {
		r := nameRuleOf(&stack[i])
		switch {
		case r == nil:
		case owner == nil, r.name == owner.name && owner.part == "" && r.part != "" && r.kind == owner.kind, slices.Contains(r.of, owner.name):
			owner = r
		}
	}
	return owner
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
	case r.library != nil && (f.Mapping == nil || !r.library.MatchString(path.Base(f.Mapping.Path))):
		return false
	case r.file != nil && !r.file.MatchString(f.File):
		return false
	}
	return r.function == nil || r.function.MatchString(f.Function)
}
