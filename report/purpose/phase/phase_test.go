// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// stackOf returns a stack from lines, leaf first: "torch/nn/modules/linear.py Linear.forward" is a
// frame of Python, "at::_ops::linear::call" one of C++.
func stackOf(lines string) (list []callstack.Frame) {
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		file, function, python := strings.Cut(line, " ")
		switch {
		case line == "":
		case python && strings.HasSuffix(file, ".py"):
			if strings.HasPrefix(file, "torch/") {
				file = "/usr/lib/python3/dist-packages/" + file
			}
			list = append(list, callstack.Frame{Function: function, File: file, Line: 1, Python: true})
		default:
			list = append(list, callstack.Frame{Function: line, Address: 1})
		}
	}
	return list
}

func TestEachRuleFitsItsExample(t *testing.T) {
	for i, r := range rules {
		f := stackOf(r.example)
		if len(f) != 1 || !f[0].Python || ruleOf(&f[0]) != i {
			t.Errorf("rule %d: rule %d fits its example %q", i, ruleOf(&f[0]), r.example)
		}
	}
}

// module is how PyTorch calls the forward pass of a module.
const module = `
	torch/nn/modules/module.py Module._call_impl
	torch/nn/modules/module.py Module._wrapped_call_impl`

// main is a training's step, and engine the root of a thread of the backward pass.
const (
	main   = "\ntrain.py Training.step\ntrain.py main\n"
	thread = `
	torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&, torch::autograd::Node*, torch::autograd::InputBuffer&, std::shared_ptr<torch::autograd::ReadyQueue> const&)
	torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)
	torch::autograd::python::PythonEngine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)`
	optimizer = `
	torch/optim/optimizer.py _use_grad_for_differentiable.<locals>._use_grad
	torch/optim/optimizer.py Optimizer.profile_hook_step.<locals>.wrapper`
)

// The stacks are those of PyTorch 2.6.
func TestPhaseOfAStack(t *testing.T) {
	linear := "at::_ops::addmm::call(at::Tensor const&)\nat::_ops::linear::call(at::Tensor const&)\ntorch/nn/modules/linear.py Linear.forward" + module
	for name, c := range map[string]struct {
		stack string
		want  Phase
		calls string
		more  func(Trait) bool
	}{
		"no stack":            {"", Unknown, "", nil},
		"own code":            {"at::_ops::mul_Tensor::call" + main, Unknown, "", func(t Trait) bool { return t.Operator == "mul_Tensor" && !t.IsInput() }},
		"a module":            {linear + "\nmodel.py Block.forward" + module + main, Forward, "Linear.forward Block.forward", func(t Trait) bool { return t.Operator == "linear" && t.Object == Nothing }},
		"a loss":              {"at::_ops::cross_entropy_loss::call\ntorch/nn/functional.py cross_entropy" + main, Forward, "", nil},
		"with a PyTorch hook": {"model.py Block.forward\ntorch/nn/modules/module.py Module._call_impl.<locals>.inner" + module + main, Forward, "Block.forward", nil},
		"a decorator":         {linear + "\ntrain.py evaluate\ntorch/utils/_contextlib.py context_decorator.<locals>.decorate_context" + main, Evaluation, "Linear.forward", nil},
		"a decorated main":    {linear + "\ntrain.py main\ntorch/utils/_contextlib.py context_decorator.<locals>.decorate_context", Evaluation, "Linear.forward", nil},
		"Lightning":           {linear + "\nmodel.py Classifier.validation_step" + main, Evaluation, "Linear.forward", nil},
		"a closure of LBFGS": {linear + "\ntrain.py closure\ntorch/utils/_contextlib.py context_decorator.<locals>.decorate_context\ntorch/optim/lbfgs.py LBFGS.step\ntorch/utils/_contextlib.py context_decorator.<locals>.decorate_context" +
			optimizer + main, Forward, "Linear.forward", nil},
		"backward":              {"at::_ops::mm::call\ntorch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)" + thread, Backward, "", func(t Trait) bool { return t.Object == Nothing }},
		"backward, same thread": {"at::_ops::mm::call\ntorch/autograd/graph.py _engine_run_backward\ntorch/_tensor.py Tensor.backward" + main, Backward, "", nil},
		"accumulated":           {"at::_ops::clone::call\ntorch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)" + thread, Backward, "", func(t Trait) bool { return t.Object == Gradient }},
		"own backward function": {"at::_ops::gelu::call\ntorch/nn/functional.py gelu\nops.py Swish.backward\ntorch/autograd/function.py BackwardCFunction.apply" + thread, Backward, "", nil},
		"recomputed": {linear + "\nmodel.py Block.forward" + module + "\ntorch/utils/checkpoint.py checkpoint.<locals>.recompute_fn\ntorch/utils/checkpoint.py _checkpoint_hook.__init__.<locals>.unpack_hook" + thread, Recompute,
			"Linear.forward Block.forward", func(t Trait) bool { return t.Checkpointed }},
		"checkpointed": {linear + "\ntorch/utils/checkpoint.py checkpoint" + main, Forward, "Linear.forward", func(t Trait) bool { return t.Checkpointed }},
		"optimizer":    {"at::_ops::_foreach_sqrt::call\ntorch/optim/adamw.py _multi_tensor_adamw\ntorch/optim/adamw.py AdamW.step" + optimizer + main, Step, "", func(t Trait) bool { return t.Object == Nothing }},
		"optimizer's state": {"at::_ops::zeros_like::call\ntorch/optim/adamw.py AdamW._init_group\ntorch/optim/adamw.py AdamW.step" + optimizer + main, Step, "",
			func(t Trait) bool { return t.Object == OptimizerState }},
		"own optimizer":        {"at::_ops::zeros_like::call\nlion.py Lion.step" + optimizer + main, Step, "", nil},
		"zero_grad":            {"at::_ops::zero_::call\ntorch/optim/optimizer.py Optimizer.zero_grad" + main, ZeroGrad, "", nil},
		"a model is moved":     {"at::_ops::to_dtype_layout::call\ntorch/nn/modules/module.py Module.to.<locals>.convert\ntorch/nn/modules/module.py Module._apply\ntorch/nn/modules/module.py Module.to" + main, Setup, "", func(t Trait) bool { return t.Object == Parameter && !t.IsInput() }},
		"a batch is moved":     {"at::_ops::_to_copy::call\nat::_ops::to_dtype_layout::call" + main, Data, "", Trait.isInput},
		"a batch is made":      {"at::_ops::empty_memory_format::call\nat::_ops::zeros::call" + main, Unknown, "", Trait.isInput},
		"a loader":             {"at::_ops::stack::call\ntorch/utils/data/_utils/collate.py collate\ntorch/utils/data/dataloader.py _BaseDataLoaderIter.__next__" + main, Data, "", Trait.isInput},
		"a workspace":          {"at::cuda::getNewWorkspace()\nat::cuda::getCurrentCUDABlasHandle()\n" + linear + main, Forward, "Linear.forward", func(t Trait) bool { return t.Object == Workspace }},
		"a handle's workspace": {"libtorch_cuda.so+0x45e2bc73\nat::cuda::getCurrentCUDABlasHandle()\nvoid at::cuda::blas::gemm<float>(char)\n" + linear + main, Forward, "Linear.forward", func(t Trait) bool { return t.Object == Workspace }},
		"libtorch":             {"at::_ops::linear::call\ntorch::nn::LinearImpl::forward(at::Tensor const&)\nmain", Forward, "", nil},
		"libtorch's step":      {"at::_ops::zeros_like::call\ntorch::optim::Adam::step(std::function<at::Tensor ()>)\nmain", Step, "", nil},
		"a name alone":         {"train.py backward\ntrain.py forward\ntrain.py step", Unknown, "", nil},
	} {
		var d Finder
		for range 2 { // the second answer is from memory
			got := d.Of(stackOf(c.stack))
			var calls []string
			for _, call := range got.Calls {
				calls = append(calls, call.Name)
				if f := stackOf(c.stack)[call.Frame]; f.Function != call.Name {
					t.Errorf("%s: frame %d is %s, not %s", name, call.Frame, f.Function, call.Name)
				}
			}
			if got.Phase != c.want || strings.Join(calls, " ") != c.calls || c.more != nil && !c.more(got) {
				t.Errorf("%s: %+v, want %v with calls %q", name, got, c.want, c.calls)
			}
		}
	}
}

func (t Trait) isInput() bool { return t.IsInput() }

func TestModuleOfATraitIsOwnCode(t *testing.T) {
	stack := stackOf("torch/nn/modules/linear.py Linear.forward" + module + "\nmodel.py Block.forward" + module + "\nmodel.py Net.forward" + module)
	var d Finder
	trait := d.Of(stack)
	own := func(frame int) bool { return strings.HasPrefix(stack[frame].File, "model") }
	if c, ok := trait.Module(own); !ok || c.Name != "Block.forward" {
		t.Errorf("%+v, %v", c, ok)
	}
	if c, ok := trait.Module(func(int) bool { return false }); !ok || c.Name != "Linear.forward" {
		t.Errorf("%+v, %v", c, ok)
	}
}

func TestPhasesHaveNames(t *testing.T) {
	if slices.Contains(names[1:], "") || Phase(200).String() != "" || Recompute.String() != "recompute" {
		t.Error(names)
	}
}

// TestCallersTellLoopsApart: who calls the outermost module, or the optimizer's step itself.
func TestCallersTellLoopsApart(t *testing.T) {
	const linear = "torch/nn/modules/linear.py Linear.forward\ntorch/nn/modules/module.py Module._call_impl\ntorch/nn/modules/module.py Module._wrapped_call_impl\n"
	for name, c := range map[string]struct {
		stack     string
		caller    string
		optimizer bool
		inStep    bool
	}{
		"modules in modules": {linear + "model.py Block.forward\ntorch/nn/modules/module.py Module._call_impl\nmodel.py Net.forward\ntorch/nn/modules/module.py Module._call_impl\ntrain.py train\ntrain.py main", "train", false, false},
		"a decorator":        {linear + "torch/utils/_contextlib.py context_decorator.<locals>.decorate_context\ntrain.py evaluate\ntrain.py main", "evaluate", false, false},
		"a loss":             {"torch/nn/functional.py cross_entropy\ntrain.py train", "train", false, false},
		"an optimizer":       {"torch/optim/adamw.py AdamW.step\ntorch/optim/optimizer.py Optimizer.profile_hook_step.<locals>.wrapper\ntrain.py train", "train", true, false},
		"a scaler":           {"torch/optim/sgd.py SGD.step\ntorch/optim/optimizer.py Optimizer.profile_hook_step.<locals>.wrapper\ntorch/amp/grad_scaler.py GradScaler._maybe_opt_step\ntorch/amp/grad_scaler.py GradScaler.step\ntrain.py train", "train", true, false},
		"clipping":           {"torch/nn/utils/clip_grad.py clip_grad_norm_\ntrain.py train", "train", false, false},
		"loaded state":       {"torch/optim/optimizer.py Optimizer.load_state_dict\ntrain.py main", "main", false, false},
		"a closure":          {linear + "train.py closure\ntorch/optim/lbfgs.py LBFGS.step\ntorch/optim/optimizer.py Optimizer.profile_hook_step.<locals>.wrapper\ntrain.py main", "closure", true, true},
		"libtorch":           {"at::_ops::zeros_like::call\ntorch::optim::Adam::step(std::function<at::Tensor ()>)\nmain", "", true, false},
		"no phase":           {"train.py train", "", false, false},
	} {
		stack := stackOf(c.stack)
		var f Finder
		got, caller := f.Of(stack), ""
		if got.Caller >= 0 {
			caller = stack[got.Caller].Function
		}
		if caller != c.caller || got.Optimizer != c.optimizer || got.InStep != c.inStep {
			t.Errorf("%s: called by %q, optimizer %v, in a step %v; want %+v", name, caller, got.Optimizer, got.InStep, c)
		}
	}
}
