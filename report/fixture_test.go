// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

type stackMap map[uint64][]callstack.Frame

func (m stackMap) Stack(id uint64) []callstack.Frame { return m[id] }

var (
	cudart = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12", BuildID: "aa11", Start: 0x6000, Limit: 0x80000, Offset: 0x6000}
	torch  = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libc10_cuda.so", BuildID: "bb22", Start: 0x1000, Limit: 0x90000, Offset: 0x1000}
	python = &callstack.Mapping{Path: "/usr/bin/python3.11", BuildID: "cc33", Start: 0x400000, Limit: 0x900000}
	libc   = &callstack.Mapping{Path: "/lib/x86_64-linux-gnu/libc.so.6", BuildID: "dd44", Start: 0x26000, Limit: 0x180000, Offset: 0x26000}
	infer  = &callstack.Mapping{Path: "/srv/infer/bin/infer", BuildID: "ee55", Start: 0x1000, Limit: 0x9000, Offset: 0x1000}

	torchC10  = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libc10.so", BuildID: "aa77", Start: 0x1000, Limit: 0x90000, Offset: 0x1000}
	torchCPU  = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so", BuildID: "aa88", Start: 0x1000, Limit: 0x9000000, Offset: 0x1000}
	torchCUDA = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so", BuildID: "aa99", Start: 0x1000, Limit: 0x9000000, Offset: 0x1000}
	torchPy   = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_python.so", BuildID: "aabb", Start: 0x1000, Limit: 0x900000, Offset: 0x1000}
	nccl      = &callstack.Mapping{Path: "/opt/venv/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2", BuildID: "aacc", Start: 0x1000, Limit: 0x900000, Offset: 0x1000}
	libcuda   = &callstack.Mapping{Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", BuildID: "aadd", Start: 0x1000, Limit: 0x900000, Offset: 0x1000}
	hostile   = &callstack.Mapping{Path: "/tmp/\x1b]0;owned\alib\nevil.so", Start: 0x1000, Limit: 0x2000}
)

func native(name string, m *callstack.Mapping, address uint64) callstack.Frame {
	return callstack.Frame{Function: name, SystemName: name, Mapping: m, Address: address}
}

func script(function, file string, line int) callstack.Frame {
	return callstack.Frame{Function: function, File: file, Line: line, StartLine: max(line-5, 0), Python: true}
}

func cpp(name, system, file string, line int, address uint64, inlined bool) callstack.Frame {
	return callstack.Frame{Function: name, SystemName: system, File: file, Line: line, Mapping: infer, Address: address, Inlined: inlined}
}

// Stacks: 1 a training step, 2 a C++ server with inlines, 3 hostile names, 4 only library code, truncated.
func testStacks() stackMap {
	return stackMap{
		1: {
			native("cudaMalloc", cudart, 0x7010),
			{Function: "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block(c10::cuda::AllocParams&, bool, std::shared_ptr<c10::Context> const&)",
				SystemName: "_ZN3c104cuda11alloc_blockE", Mapping: torch, Address: 0x2020},
			script("Linear.forward", "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/linear.py", 125),
			native("_PyEval_EvalFrameDefault", python, 0x430000),
			native("method_vectorcall", python, 0x431000),
			script("Trainer.step", "/home/ada/llm/train.py", 42),
			script("<module>", "/home/ada/llm/train.py", 7),
			script("Thread.run", "/usr/lib/python3.11/threading.py", 975),
			native("pymain_run_python", python, 0x432000),
			native("__libc_start_call_main", libc, 0x27f00),
		},
		2: {
			native("cuMemAlloc_v2", &callstack.Mapping{Path: "/usr/lib/libcuda.so.1", BuildID: "ff66", Start: 0x1000, Limit: 0x2000}, 0x1100),
			cpp("Pool::take(unsigned long)", "_ZN4Pool4takeEm", "src/pool.h", 18, 0x1500, true),
			cpp("Pool::grow<float>(int)", "_ZN4Pool4growIfEEvi", "src/pool.h", 31, 0x1500, true),
			cpp("handle(Request const&)", "_Z6handleRK7Request", "src/server.cc", 207, 0x1500, false),
			cpp("main", "main", "src/server.cc", 300, 0x1800, false),
			native("__libc_start_main", libc, 0x28000),
		},
		3: {
			native("cudaMallocHost", cudart, 0x7100),
			native(strings.Repeat("evil<\x1b[31m,", 1000)+">", hostile, 0x1010),
			script("\x1b]8;;http://x\x07step\nstep\u202e", "/tmp/\x1b[2J\n"+strings.Repeat("很", 100)+"/x.py", 3),
			native("", hostile, 0x1020),
			script("", "", 0),
		},
		4: {
			native("cudaMalloc", cudart, 0x7010),
			native("libc10_cuda.so+0x3030", torch, 0x3030),
			{Function: "[truncated: too deep]", Mark: true},
		},
	}
}

const (
	mib    = uint64(1) << 20
	second = uint64(time.Second)
)

// testSnapshot: a training process that leaks, a server that exited, a hostile one.
func testSnapshot() *ledger.Snapshot {
	begin := 1000 * second
	l := ledger.New(ledger.Options{Begin: begin, Host: "gpu-box-1"})
	l.Tell(ledger.GPUs{
		{Index: 0, UUID: "GPU-1a2b3c4d-0000-0000-0000-000000000000", Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 3500 * mib},
		{Index: 1, UUID: "GPU-5e6f7a8b-0000-0000-0000-000000000000", Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 500 * mib},
	})

	gpu := []string{"GPU-1a2b3c4d-0000-0000-0000-000000000000", "GPU-5e6f7a8b-0000-0000-0000-000000000000"}
	l.Tell(ledger.Process{PID: 4242, Comm: "python3", Exe: "/usr/bin/python3.11", Begin: begin, Workload: ledger.Workload{
		Container: "9e073649debeec6d511391c9ec7627ee67ce3a3fb508b0fa0437a97f8e58ba98", Pod: "llama-0", Namespace: "ml", Job: "llama-7",
		Rank: "0", LocalRank: "0", WorldSize: "8",
	}})

	l.Tell(ledger.Devices{PID: 4242, UUIDs: gpu})
	l.Tell(ledger.Process{PID: 5151, Comm: "infer", Exe: "/srv/infer/bin/infer", Begin: begin + second})
	l.Tell(ledger.Devices{PID: 5151, UUIDs: gpu[1:]})
	l.Tell(ledger.Process{PID: 666, Comm: "\x1b[31mevil\n", Exe: "/tmp/\x1b[31mevil", Begin: begin, Workload: ledger.Workload{
		Container: "019c1fe80d924aa0b61c4df58bdde71c", Job: "\x1b[2J" + strings.Repeat("很", 60) + "\n", Rank: "\x1b1", LocalRank: "-1",
	}})

	l.Tell(ledger.UsageReading{Time: begin, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 1310 * mib}}})

	event := func(op ledger.Op, kind ledger.Kind, pid uint32, device int32, at, address, size, stack uint64, api string, result int32) {
		l.Apply(&ledger.Event{Op: op, Kind: kind, PID: pid, TID: pid, Device: device, Time: begin + at*second/10, Address: address, Size: size, Stack: stack, API: api, Result: result})
	}
	event(ledger.Alloc, ledger.Device, 4242, ledger.UnknownDevice, 15, 0x9000, 100*mib, 4, "cudaMalloc", 0)
	for i := range uint64(100) { // a leak of 20 MiB each second
		event(ledger.Alloc, ledger.Device, 4242, 0, 10*i, 0x10000+i, 20*mib, 1, "cudaMalloc", 0)
	}
	event(ledger.Free, ledger.Device, 4242, 0, 20, 0x8888, 0, 0, "", 0)
	event(ledger.AllocFailed, ledger.Device, 4242, 0, 900, 0, 60<<30, 1, "cudaMalloc", 2)
	event(ledger.AllocFailed, ledger.Device, 4242, 0, 950, 0, 50<<30, 1, "cudaMalloc", 2)
	event(ledger.Alloc, ledger.Device, 5151, ledger.UnknownDevice, 30, 0x100, 64*mib, 2, "cuMemAlloc_v2", 0)
	event(ledger.Alloc, ledger.Device, 5151, ledger.UnknownDevice, 31, 0x200, 128*mib, 2, "cuMemAlloc_v2", 0)
	l.Tell(ledger.UsageReading{Time: begin + 4*second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 1400 * mib}, {PID: 5151, UUID: gpu[1], Bytes: 500 * mib}}})
	event(ledger.Free, ledger.Device, 5151, ledger.UnknownDevice, 50, 0x200, 0, 0, "", 0)
	l.Tell(ledger.UsageReading{Time: begin + 6*second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 1400 * mib}, {PID: 5151, UUID: gpu[1], Bytes: 500 * mib}}})
	event(ledger.Exit, 0, 5151, 0, 600, 0, 0, 0, "", 0)
	event(ledger.Alloc, ledger.Pinned, 666, ledger.UnknownDevice, 40, 0x300, 4096, 3, "cudaMallocHost", 0)
	event(ledger.Alloc, ledger.Managed, 666, 1, 41, 0x400, 3*mib, 0, "cudaMallocManaged", 0)
	l.Tell(ledger.UsageReading{Time: begin + 99*second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu[0], Bytes: 3420 * mib}}})
	l.Tell(ledger.Stats{Lost: 12, Stacks: 107, NoStack: 1, Missing: map[string]uint64{"as unwind tables were not loaded yet": 1}, Truncated: map[string]uint64{"too deep": 1, "no unwind table": 2}})
	l.Tell(ledger.Warning{Text: "/usr/lib/libbroken.so.1 is not ELF and was skipped \x1b[31m"})
	return l.Snapshot(begin+100*second, time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC))
}
