// SPDX-License-Identifier: Apache-2.0

package frames_test

import (
	"regexp"
	"testing"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

func TestStacksEndAtCodeThatPeopleCanChange(t *testing.T) {
	library := func(path string) *callstack.Mapping { return &callstack.Mapping{Path: path} }
	template := func(name, system string) callstack.Frame {
		return callstack.Frame{Function: name, SystemName: system, Mapping: reporttest.Infer, Address: 9}
	}
	var (
		driver   = reporttest.Native("cuMemAlloc_v2", library("/usr/lib/libcuda.so.1"), 1)
		call     = reporttest.Native("cudaMalloc", reporttest.CUDART, 1)
		report   = reporttest.Native("c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)", reporttest.C10, 1)
		unnamed  = reporttest.Native("libc10_cuda.so+0x30de5", reporttest.Torch, 0x30de5)
		empty    = reporttest.Native("at::detail::empty_cuda(c10::ArrayRef<long>)", reporttest.TorchCPU, 1)
		emptyOp  = reporttest.Native("at::_ops::empty::redispatch(c10::DispatchKeySet)", reporttest.TorchCPU, 1)
		linear   = reporttest.Native("at::_ops::linear::call(at::Tensor const&)", reporttest.TorchCPU, 1)
		variable = reporttest.Native("torch::autograd::THPVariable_linear(_object*)", library("/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so"), 1)
		forward  = reporttest.Script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 1)
		mine     = reporttest.Script("step", "/home/ada/train.py", 1)
		addmm    = reporttest.Native("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", reporttest.TorchCPU, 1)
		thread   = reporttest.Native("torch::autograd::Engine::thread_main()", reporttest.TorchCPU, 1)
		start    = reporttest.Native("start_thread", reporttest.Libc, 1)
		once     = reporttest.Native("__pthread_once_slow", reporttest.Libc, 1)
		handle   = reporttest.Native("handle(Request const&)", reporttest.Infer, 1)
		server   = reporttest.Native("infer+0x1234", reporttest.Infer, 0x1234)
		take     = callstack.Frame{Function: "Pool::take(int)", SystemName: "_ZN4Pool4takeEi", File: "/srv/src/pool.h", Line: 4, Mapping: reporttest.Infer, Address: 7, Inlined: true}
		vector   = template("std::vector<int>::push_back(int&&)", "_ZNSt6vectorIiE9push_backEOi")
		thrust   = template("thrust::detail::allocate<int>(int)", "_ZN6thrust6detail8allocateIiEEvi")
		static   = template("cudaMalloc", "cudaMalloc")
		nccl     = reporttest.Native("ncclCommInitRankConfig", library("/opt/lib/libnccl.so.2"), 1)
		ncclSelf = reporttest.Native("libnccl.so.2+0x1000", library("/opt/lib/libnccl.so.2"), 0x1000)
		onnx     = reporttest.Native("onnxruntime::cuda::Conv<float>::ComputeInternal(X*)", library("/opt/lib/libonnxruntime.so.1"), 1)
		cfunc    = reporttest.Native("PyCFuncPtr_call", library("/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"), 1)
		ffi      = reporttest.Native("ffi_call", library("/usr/lib/libffi.so.8"), 1)
		cut      = callstack.Frame{Function: "[truncated: too deep]", Mark: true}
		none     = frames.NoStack(0)
	)
	for _, c := range []struct {
		name   string
		stack  []callstack.Frame
		leaf   callstack.Frame
		callee string
	}{
		{"Python that calls an operator", []callstack.Frame{report, unnamed, empty, emptyOp, linear, variable, forward, mine, start}, forward, "at::_ops::linear::call"},
		{"the user's own Python", []callstack.Frame{driver, call, unnamed, linear, mine, start}, mine, "at::_ops::linear::call"},
		{"Python that calls a library", []callstack.Frame{driver, ncclSelf, nccl, mine}, mine, "ncclCommInitRankConfig"},
		{"Python that calls a library without names", []callstack.Frame{driver, ncclSelf, mine}, mine, "cuMemAlloc_v2"},
		{"ctypes", []callstack.Frame{call, ffi, cfunc, mine}, mine, "cudaMalloc"},
		{"an own library of Python", []callstack.Frame{call, handle, variable, mine}, handle, "cudaMalloc"},
		{"Python that calls a library other than PyTorch", []callstack.Frame{call, onnx, mine}, mine, "onnxruntime::cuda::Conv<…>::ComputeInternal"},
		{"C++", []callstack.Frame{driver, call, handle, start}, handle, "cudaMalloc"},
		{"C++ without symbols", []callstack.Frame{call, server, handle}, server, "cudaMalloc"},
		{"an inlined function", []callstack.Frame{call, take, handle}, take, "cudaMalloc"},
		{"C++ with templates of libraries", []callstack.Frame{driver, static, thrust, vector, handle}, handle, "std::vector<…>::push_back"},
		{"C++ with CUDA's runtime in itself", []callstack.Frame{driver, server, static, handle}, handle, "cudaMalloc"},
		{"C++ with a library that is not PyTorch", []callstack.Frame{driver, call, onnx, handle}, onnx, "cudaMalloc"},
		{"C++ with PyTorch", []callstack.Frame{report, unnamed, empty, linear, handle}, handle, "at::_ops::linear::call"},
		{"what initializes once", []callstack.Frame{call, unnamed, once, unnamed, linear, handle}, handle, "at::_ops::linear::call"},
		{"the backward pass", []callstack.Frame{report, unnamed, empty, emptyOp, linear, addmm, thread, start}, addmm, "at::_ops::linear::call"},
		{"a thread of PyTorch", []callstack.Frame{report, unnamed, empty, emptyOp, linear, unnamed, thread, start}, linear, "at::_ops::empty::redispatch"},
		{"a thread of PyTorch without operators", []callstack.Frame{call, unnamed, thread, start}, call, ""},
		{"a cut stack", []callstack.Frame{report, unnamed, emptyOp, linear, cut}, linear, "at::_ops::empty::redispatch"},
		{"a stack cut in the allocator", []callstack.Frame{call, unnamed, cut}, call, ""},
		{"no stack", []callstack.Frame{call, none}, call, ""},
		{"a call alone", []callstack.Frame{call}, call, ""},
		{"a mark", []callstack.Frame{none}, none, ""},
	} {
		n, callee := frames.Leaf(c.stack)
		if c.stack[n] != c.leaf || callee != c.callee {
			t.Errorf("%s: the leaf is %s that calls %q, want %s that calls %q", c.name, c.stack[n].Function, callee, c.leaf.Function, c.callee)
		}
	}
	stack := []callstack.Frame{report, unnamed, empty, linear, forward, mine}
	frames.MarkMine(stack, regexp.MustCompile(`at::_ops::linear`))
	if n, callee := frames.Leaf(stack); stack[n].Function != linear.Function || callee != "at::detail::empty_cuda" {
		t.Errorf("with --mine, the leaf is %s that calls %q", stack[n].Function, callee)
	}
	if n, _ := frames.Leaf(nil); n != 0 {
		t.Error("no frames have a leaf")
	}
}
