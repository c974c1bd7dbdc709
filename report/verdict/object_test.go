// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// stackOf reads "function file:line" for Python, "function [library]" for native frames; leaf
// first.
func stackOf(lines ...string) (list []callstack.Frame) {
	for _, l := range lines {
		i := strings.LastIndexByte(l, ' ')
		f := callstack.Frame{Function: l[:i]}
		if at := l[i+1:]; at[0] == '[' {
			f.Mapping = &callstack.Mapping{Path: "/usr/lib/" + strings.Trim(at, "[]")}
		} else {
			file, line, _ := strings.Cut(at, ":")
			f.Python, f.File, f.Line = true, file, 0
			for _, c := range line {
				f.Line = 10*f.Line + int(c-'0')
			}
		}
		list = append(list, f)
	}
	return list
}

const (
	torch = "/usr/lib/python3/dist-packages/torch/"
	train = "main /home/u/train.py:9"
)

var stacks = map[Object][]callstack.Frame{
	objectOptimizer:  stackOf("at::native::zeros_like(at::Tensor const&) [libtorch_cpu.so]", "Adam._init_group "+torch+"optim/adam.py:174", "Adam.step "+torch+"optim/adam.py:234", train),
	objectBackward:   stackOf("at::_ops::mm::call(at::Tensor const&) [libtorch_cpu.so]", "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&) [libtorch_cpu.so]", "torch::autograd::Engine::thread_main(std::shared_ptr<x> const&) [libtorch_cpu.so]"),
	objectGradient:   stackOf("at::native::clone(at::Tensor const&) [libtorch_cpu.so]", "torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&) [libtorch_cpu.so]", "torch::autograd::Engine::thread_main(std::shared_ptr<x> const&) [libtorch_cpu.so]"),
	objectActivation: stackOf("at::_ops::addmm::call(at::Tensor const&) [libtorch_cpu.so]", "Linear.forward "+torch+"nn/modules/linear.py:125", "Module._call_impl "+torch+"nn/modules/module.py:1749", train),
	objectParameter:  stackOf("at::native::to(at::Tensor const&) [libtorch_cpu.so]", "Module.to.<locals>.convert "+torch+"nn/modules/module.py:1326", "Module._apply "+torch+"nn/modules/module.py:955", train),
	objectCuBLAS:     stackOf("cudaMalloc [libcudart.so.12]", "at::cuda::(anonymous namespace)::getNewWorkspace() [libtorch_cuda.so]", "Linear.forward "+torch+"nn/modules/linear.py:125", train),
	objectNCCL:       stackOf("cudaMalloc [libcudart.so.12]", "ncclCommInitRank [libnccl.so.2]", train),
	objectLoaded:     stackOf("at::native::to(at::Tensor const&) [libtorch_cpu.so]", "_load "+torch+"serialization.py:1855", train),
	objectUnknown:    stackOf("at::native::randn(at::Tensor const&) [libtorch_cpu.so]", train),
}

func TestObjectsAreWhatTheStackProves(t *testing.T) {
	for want, stack := range stacks {
		if got := (objects{}).find(stack, ledger.Tensor); got != want {
			t.Errorf("%q, want %q: %v", got, want, stack)
		}
	}
	for _, c := range []struct {
		name  string
		want  Object
		kind  ledger.Kind
		stack []callstack.Frame
	}{
		{"user's function in a module", objectActivation, ledger.Tensor, stackOf("at::_ops::tanh::call(at::Tensor const&) [libtorch_cpu.so]", "Critic.forward /home/u/train.py:16", "Module._call_impl "+torch+"nn/modules/module.py:1749", train)},
		{"temporary of an optimizer", objectUnknown, ledger.Tensor, stackOf("at::_ops::_foreach_sqrt::call(x) [libtorch_cpu.so]", "_multi_tensor_adam "+torch+"optim/adam.py:612", "Adam.step "+torch+"optim/adam.py:244", train)},
		{"old Python without classes", objectOptimizer, ledger.Tensor, stackOf("zeros [libtorch_cpu.so]", "_init_group "+torch+"optim/adam.py:174", train)},
		{"pinned by the loader", objectPrefetched, ledger.Pinned, stackOf("cudaHostAlloc [libcudart.so.12]", "x [libtorch_cuda.so]", "pin_memory "+torch+"utils/data/_utils/pin_memory.py:60")},
		{"pinned by the user", objectPinned, ledger.Pinned, stackOf("cudaHostAlloc [libcudart.so.12]", "x [libtorch_cuda.so]", train)},
		{"pinned by C", objectUnknown, ledger.Pinned, stackOf("cudaHostAlloc [libcudart.so.12]", "main [train]")},
		{"a user's file of that name", objectUnknown, ledger.Tensor, stackOf("x [libtorch_cpu.so]", "step /home/u/optim/adam.py:1")},
		{"handle of a library", objectWorkspace, ledger.Device, stackOf("cudaMalloc [libcudart.so.12]", "cudnnCreate [libcudnn.so.9]", train)},
		{"handle of cuBLAS", objectCuBLAS, ledger.Device, stackOf("cudaMalloc [libcudart.so.12]", "cublasCreate_v2 [train]", train)},
		{"workspace of a handle", objectCuBLAS, ledger.Tensor, stackOf("libc10_cuda.so+0x1234 [libc10_cuda.so]", "at::cuda::getCurrentCUDABlasHandle() [libtorch_cuda.so]", "Linear.forward "+torch+"nn/modules/linear.py:125", train)},
		{"cuBLAS without symbols", objectCuBLAS, ledger.Device, stackOf("cuMemAlloc_v2 [libcuda.so.1]", "libcublas.so.12+0x1234 [libcublas.so.12]", "at::native::addmm(at::Tensor const&) [libtorch_cuda.so]", train)},
		{"cuBLASLt", objectCuBLAS, ledger.Device, stackOf("cuMemAlloc_v2 [libcuda.so.1]", "libcublasLt.so.12+0x1234 [libcublasLt.so.12]", train)},
	} {
		if got := (objects{}).find(c.stack, c.kind); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
