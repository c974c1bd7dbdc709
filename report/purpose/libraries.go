// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"path"
	"regexp"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// libraryRule is one row of the table of those who allocate from CUDA for themselves.
type libraryRule struct {
	kind Kind
	name string // as people call the library
	// A frame fits if all of these do that are not nil.
	library  *regexp.Regexp // name of the mapped file
	function *regexp.Regexp // demangled
	file     *regexp.Regexp // source file, of Python
	example  callstack.Frame
}

func mapped(file string) callstack.Frame {
	return callstack.Frame{Function: file + "+0x1000", Mapping: &callstack.Mapping{Path: "/usr/lib/" + file}}
}

func native(function string) callstack.Frame { return callstack.Frame{Function: function} }

func script(file, function string) callstack.Frame {
	return callstack.Frame{Function: function, File: "/opt/venv/lib/python3.11/site-packages/" + file, Line: 1, Python: true}
}

var re = regexp.MustCompile

// libraryRules are tried for each frame from the leaf on: the first frame that a rule fits decides, and of its
// rules the first.
var libraryRules = []libraryRule{
	// llama.cpp and others on ggml. The callers of its backend show what a buffer is for.
	{Weights, "llama.cpp", nil, re(`(^|::)llama_model(_loader)?::load_|^llama_model_load`), nil, native("llama_model::load_tensors(llama_model_loader&)")},
	{KVCache, "llama.cpp", nil, re(`(^|::)llama_(kv_cache|memory)\w*(::|_init)`), nil, native("llama_kv_cache::llama_kv_cache(llama_model const&, ggml_type)")},
	{Library, "ggml compute buffers", nil, re(`^ggml_(gallocr|backend_sched)_(reserve|alloc)`), nil, native("ggml_gallocr_reserve_n")},
	{Library, "ggml pool", nil, re(`^ggml_cuda_pool\w*::`), nil, native("ggml_cuda_pool_vmm::alloc(unsigned long, unsigned long*)")},

	{Library, "NCCL", re(`^libnccl`), nil, nil, mapped("libnccl.so.2")},
	{Library, "NCCL", nil, re(`^nccl[A-Z]`), nil, native("ncclCommInitRankConfig")},
	{Library, "NVSHMEM", re(`^libnvshmem`), nil, nil, mapped("libnvshmem_host.so.3")},
	{Library, "cuBLAS", re(`^libcublas`), nil, nil, mapped("libcublasLt.so.12")},
	{Library, "cuDNN", re(`^libcudnn`), nil, nil, mapped("libcudnn_engines_precompiled.so.9")},
	{Library, "cuFFT", re(`^libcufft`), nil, nil, mapped("libcufft.so.11")},
	{Library, "cuSOLVER", re(`^libcusolver`), nil, nil, mapped("libcusolver.so.11")},
	{Library, "cuSPARSE", re(`^libcusparse`), nil, nil, mapped("libcusparse.so.12")},
	{Library, "cuRAND", re(`^libcurand`), nil, nil, mapped("libcurand.so.10")},
	{Library, "cuTENSOR", re(`^libcutensor`), nil, nil, mapped("libcutensor.so.2")},
	{Library, "TensorRT", re(`^lib(nvinfer|nvonnxparser|trt)`), nil, nil, mapped("libnvinfer.so.10")},
	{Library, "NPP, nvJPEG", re(`^lib(npp|nvjpeg)`), nil, nil, mapped("libnvjpeg.so.12")},
	{Library, "DALI", re(`^libdali`), nil, nil, mapped("libdali_operators.so")},
	{Library, "ONNX Runtime", re(`^libonnxruntime`), nil, nil, mapped("libonnxruntime_providers_cuda.so")},
	{Library, "TensorFlow", re(`^libtensorflow|^_pywrap_tensorflow`), nil, nil, mapped("libtensorflow_cc.so.2")},
	{Library, "XLA", re(`^xla_(extension|cuda_plugin)|^libxla`), nil, nil, mapped("xla_cuda_plugin.so")},
	{Library, "RAPIDS", re(`^lib(rmm|raft|cudf|cuml|cugraph)`), nil, nil, mapped("librmm.so")},
	{Library, "Faiss", re(`^libfaiss|^_swigfaiss`), nil, nil, mapped("libfaiss.so")},
	{Library, "ggml", re(`^libggml|^libllama`), nil, nil, mapped("libggml-cuda.so")},
	{Library, "ggml", nil, re(`^ggml_`), nil, native("ggml_backend_cuda_init")},

	// Code that Python generates and loads as modules.
	{Library, "Triton", nil, nil, re(`(^|/)triton/(runtime|compiler|backends)/`), script("triton/compiler/compiler.py", "CompiledKernel._init_handles")},
	{Library, "TorchInductor", nil, nil, re(`(^|/)torch/_inductor/|(^|/)torchinductor_`), script("torch/_inductor/runtime/triton_heuristics.py", "CachingAutotuner.launch")},
	{Library, "CuPy", nil, nil, re(`(^|/)cupy/`), script("cupy/cuda/memory.py", "alloc")},
	{Library, "Numba", nil, nil, re(`(^|/)numba/cuda/`), script("numba/cuda/cudadrv/driver.py", "memalloc")},

	// A pluggable allocator or the backend cudaMallocAsync: no tensors are reported.
	{Torch, "", re(`^libc10_cuda\.so`), nil, nil, mapped("libc10_cuda.so")},
	{Torch, "", nil, re(`CUDAPluggableAllocator`), nil, native("torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator::malloc(unsigned long, signed char, CUstream_st*)")},
}

// libraryOf returns whose memory a stack allocates; false if no rule fits.
func libraryOf(stack []callstack.Frame) (rowKey, bool) {
	for i := range stack {
		if r := libraryRuleOf(&stack[i]); r != nil {
			if r.name == "ggml" { // a caller shows what for
				if better := purposeOfGGML(stack[i+1:]); better != nil {
					r = better
				}
			}
			return rowKey{r.kind, r.name}, true
		}
	}
	return rowKey{}, false
}

// purposeOfGGML returns the rule for what a buffer of ggml is for, or nil.
func purposeOfGGML(callers []callstack.Frame) *libraryRule {
	for i := range callers {
		if r := libraryRuleOf(&callers[i]); r != nil && r.name != "ggml" {
			return r
		}
	}
	return nil
}

func libraryRuleOf(f *callstack.Frame) *libraryRule {
	if f.Mark {
		return nil
	}
	for i := range libraryRules {
		if r := &libraryRules[i]; r.fits(f) {
			return r
		}
	}
	return nil
}

func (r *libraryRule) fits(f *callstack.Frame) bool {
	switch {
	case r.file != nil:
		return f.Python && r.file.MatchString(f.File)
	case f.Python:
		return false
	case r.library != nil:
		return f.Mapping != nil && r.library.MatchString(path.Base(f.Mapping.Path))
	}
	return r.function.MatchString(f.Function)
}
