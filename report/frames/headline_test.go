// SPDX-License-Identifier: Apache-2.0

package frames_test

import (
	"testing"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

func TestHeadlineIsTheUsersOwnCode(t *testing.T) {
	var (
		call    = reporttest.Native("cudaMalloc", reporttest.CUDART, 1)
		library = reporttest.Script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 1)
		debian  = reporttest.Script("f", "/usr/lib/python3/dist-packages/numpy/core.py", 1)
		std     = reporttest.Script("Thread.run", "/usr/lib/python3.11/threading.py", 1)
		zipped  = reporttest.Script("run", "/usr/lib/python311.zip/threading.py", 1)
		frozen  = reporttest.Script("_call_with_frames_removed", "<frozen importlib._bootstrap>", 1)
		mine    = reporttest.Script("step", "/home/ada/train.py", 1)
		dashC   = reporttest.Script("<module>", "<string>", 1)
		start   = reporttest.Native("__libc_start_main", reporttest.Libc, 1)
		alloc   = reporttest.Native("c10::alloc", reporttest.Torch, 1)
		handle  = reporttest.Native("handle", reporttest.Infer, 1)
		unnamed = reporttest.Native("infer+0x1234", reporttest.Infer, 0x1234)
		jit     = callstack.Frame{Function: "kernel_launcher", Address: 7}
		ctypes  = reporttest.Native("py_cfunc", &callstack.Mapping{Path: "/usr/lib/python3.11/lib-dynload/_ctypes.cpython-311-x86_64-linux-gnu.so"}, 1)
		ffi     = reporttest.Native("ffi_call", &callstack.Mapping{Path: "/usr/lib/libffi.so.8"}, 1)
		eval    = reporttest.Native("_PyEval_EvalFrameDefault", reporttest.Python, 1)
		addmm   = reporttest.Native("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", reporttest.TorchCPU, 1)
		gather  = reporttest.Native("torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)", reporttest.TorchCPU, 1)
		driver  = reporttest.Native("cuMemAlloc_v2", &callstack.Mapping{Path: "/usr/lib/libcuda.so.1"}, 1)
		nccl    = reporttest.Native("libnccl.so.2+0x1125cd", &callstack.Mapping{Path: "/usr/lib/libnccl.so.2"}, 1)
		mark    = callstack.Frame{Function: "[truncated: x]", Mark: true}
	)
	for _, c := range []struct {
		name  string
		stack []callstack.Frame
		want  callstack.Frame
	}{
		{"Python over libraries", []callstack.Frame{call, alloc, library, debian, std, mine, dashC}, mine},
		{"Python over native code nearer to the call", []callstack.Frame{call, handle, mine}, mine},
		{"python -c is the user's", []callstack.Frame{call, frozen, zipped, dashC}, dashC},
		{"native code of the program", []callstack.Frame{call, alloc, ctypes, ffi, eval, handle, start}, handle},
		{"a name is better than an address", []callstack.Frame{call, unnamed, handle, start}, handle},
		{"an address is better than nothing", []callstack.Frame{call, alloc, unnamed, start, mark}, unnamed},
		{"code made at run time", []callstack.Frame{call, jit, start}, jit},
		{"library Python for want of better", []callstack.Frame{call, alloc, library, std, start}, library},
		{"a step of the backward pass, whose threads have no Python", []callstack.Frame{call, alloc, addmm, start}, addmm},
		{"a gradient that is added to another", []callstack.Frame{call, alloc, gather, start}, gather},
		{"a library that uses CUDA", []callstack.Frame{driver, nccl, start}, nccl},
		{"the call itself for want of all", []callstack.Frame{call, alloc, start, mark}, call},
	} {
		if got := c.stack[frames.Headline(c.stack)]; got != c.want {
			t.Errorf("%s: got %s in %s, want %s", c.name, got.Function, got.File, c.want.Function)
		}
	}
}
