// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"strings"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

type StackMap map[uint64][]callstack.Frame

func (m StackMap) Stack(id uint64) []callstack.Frame { return m[id] }

var (
	CUDART = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12", BuildID: "aa11", Start: 0x6000, Limit: 0x80000, Offset: 0x6000}
	Torch  = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libc10_cuda.so", BuildID: "bb22", Start: 0x1000, Limit: 0x90000, Offset: 0x1000}
	Python = &callstack.Mapping{Path: "/usr/bin/python3.11", BuildID: "cc33", Start: 0x400000, Limit: 0x900000}
	Libc   = &callstack.Mapping{Path: "/lib/x86_64-linux-gnu/libc.so.6", BuildID: "dd44", Start: 0x26000, Limit: 0x180000, Offset: 0x26000}
	Infer  = &callstack.Mapping{Path: "/srv/infer/bin/infer", BuildID: "ee55", Start: 0x1000, Limit: 0x9000, Offset: 0x1000}

	C10       = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libc10.so", BuildID: "aa77", Start: 0x1000, Limit: 0x90000, Offset: 0x1000}
	TorchCPU  = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", BuildID: "aa88", Start: 0x1000, Limit: 0x9000000, Offset: 0x1000}
	torchCUDA = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so", BuildID: "aa99", Start: 0x1000, Limit: 0x9000000, Offset: 0x1000}
	torchPy   = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so", BuildID: "aabb", Start: 0x1000, Limit: 0x900000, Offset: 0x1000}
	nccl      = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", BuildID: "aacc", Start: 0x1000, Limit: 0x900000, Offset: 0x1000}
	libcuda   = &callstack.Mapping{Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", BuildID: "aadd", Start: 0x1000, Limit: 0x900000, Offset: 0x1000}
	hostile   = &callstack.Mapping{Path: "/tmp/\x1b]0;owned\alib\nevil.so", Start: 0x1000, Limit: 0x2000}
)

func Native(name string, m *callstack.Mapping, address uint64) callstack.Frame {
	return callstack.Frame{Function: name, SystemName: name, Mapping: m, Address: address}
}

func Script(function, file string, line int) callstack.Frame {
	return callstack.Frame{Function: function, File: file, Line: line, StartLine: max(line-5, 0), Python: true}
}

func cpp(name, system, file string, line int, address uint64, inlined bool) callstack.Frame {
	return callstack.Frame{Function: name, SystemName: system, File: file, Line: line, Mapping: Infer, Address: address, Inlined: inlined}
}

// Stacks are the stacks of Snapshot: 1 a training step, 2 a C++ server with inlined calls, 3
// hostile names, 4 only library code, truncated.
func Stacks() StackMap {
	return StackMap{
		1: {
			Native("cudaMalloc", CUDART, 0x7010),
			{Function: "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block(c10::cuda::AllocParams&, bool, std::shared_ptr<c10::Context> const&)",
				SystemName: "_ZN3c104cuda11alloc_blockE", Mapping: Torch, Address: 0x2020},
			Script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125),
			Native("_PyEval_EvalFrameDefault", Python, 0x430000),
			Native("method_vectorcall", Python, 0x431000),
			Script("Trainer.step", "/home/ada/llm/train.py", 42),
			Script("<module>", "/home/ada/llm/train.py", 7),
			Script("Thread.run", "/usr/lib/python3.11/threading.py", 975),
			Native("pymain_run_python", Python, 0x432000),
			Native("__libc_start_call_main", Libc, 0x27f00),
		},
		2: {
			Native("cuMemAlloc_v2", &callstack.Mapping{Path: "/usr/lib/libcuda.so.1", BuildID: "ff66", Start: 0x1000, Limit: 0x2000}, 0x1100),
			cpp("Pool::take(unsigned long)", "_ZN4Pool4takeEm", "src/pool.h", 18, 0x1500, true),
			cpp("Pool::grow<float>(int)", "_ZN4Pool4growIfEEvi", "src/pool.h", 31, 0x1500, true),
			cpp("handle(Request const&)", "_Z6handleRK7Request", "src/server.cc", 207, 0x1500, false),
			cpp("main", "main", "src/server.cc", 300, 0x1800, false),
			Native("__libc_start_main", Libc, 0x28000),
		},
		3: {
			Native("cudaMallocHost", CUDART, 0x7100),
			Native(strings.Repeat("evil<\x1b[31m,", 1000)+">", hostile, 0x1010),
			Script("\x1b]8;;http://x\x07step\nstep\u202e", "/tmp/\x1b[2J\n"+strings.Repeat("很", 100)+"/x.py", 3),
			Native("", hostile, 0x1020),
			Script("", "", 0),
		},
		4: {
			Native("cudaMalloc", CUDART, 0x7010),
			Native("libc10_cuda.so+0x3030", Torch, 0x3030),
			{Function: "[truncated: too deep]", Mark: true},
		},
	}
}
