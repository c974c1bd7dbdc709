// SPDX-License-Identifier: Apache-2.0

package phase

import (
	"strings"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// evidence is what one frame shows.
type evidence struct {
	phase      Phase // Evaluation: no gradients are wanted, if a forward pass runs
	object     Object
	call       bool   // it calls the forward pass of a module
	decorator  bool   // of Evaluation: the decorator of torch.no_grad(), torch.inference_mode() or torch.enable_grad()
	checkpoint bool   // of torch.utils.checkpoint
	optimizer  bool   // of Step: the step of an optimizer itself
	closures   bool   // of Step: it calls the user's closure several times
	operator   string // of PyTorch
}

// rule is one row of the table: what Python frames show.
type rule struct {
	file    *lazyregexp.Regexp // of the source file
	methods string             // names without class, separated by spaces; "": all
	evidence
	example string // a frame that it is for: "torch/optim/adamw.py AdamW.step"
}

var (
	moduleBase = lazyregexp.New(`(^|/)torch/nn/modules/module\.py$`)
	modules    = lazyregexp.New(`(^|/)torch/nn/(modules|parallel|quantized|intrinsic)/`)
	anywhere   = lazyregexp.New(``)
)

// rules are read from top to bottom: the first that fits decides.
var rules = []rule{
	// A module's forward pass.
	{moduleBase, "_call_impl inner", evidence{phase: Forward, call: true}, "torch/nn/modules/module.py Module._call_impl"},
	{moduleBase, "_wrapped_call_impl __call__ _slow_forward", evidence{phase: Forward}, "torch/nn/modules/module.py Module._wrapped_call_impl"},
	{lazyregexp.New(`(^|/)torch/nn/functional\.py$`), "", evidence{phase: Forward}, "torch/nn/functional.py cross_entropy"},
	{modules, "forward", evidence{phase: Forward}, "torch/nn/modules/linear.py Linear.forward"},
	{lazyregexp.New(`(^|/)torch/utils/checkpoint\.py$`), "", evidence{checkpoint: true}, "torch/utils/checkpoint.py CheckpointFunction.backward"},

	// The backward pass. Most of it runs on threads of the engine, below native frames alone.
	{lazyregexp.New(`(^|/)torch/autograd/(__init__|graph)\.py$`), "backward grad _engine_run_backward", evidence{phase: Backward}, "torch/autograd/graph.py _engine_run_backward"},
	{lazyregexp.New(`(^|/)torch/_tensor\.py$`), "backward", evidence{phase: Backward}, "torch/_tensor.py Tensor.backward"},

	// An optimizer's step. The wrapper is around the step of each class of optimizers, also the
	// user's.
	{lazyregexp.New(`(^|/)torch/optim/[^/]+\.py$`), "_init_group _init_state load_state_dict", evidence{phase: Step, object: OptimizerState}, "torch/optim/adamw.py AdamW._init_group"},
	{lazyregexp.New(`(^|/)(bitsandbytes/optim|apex/optimizers)/`), "init_state init_state_8bit", evidence{phase: Step, object: OptimizerState}, "bitsandbytes/optim/optimizer.py Optimizer2State.init_state"},
	{lazyregexp.New(`(^|/)torch/(optim/optimizer|nn/modules/module)\.py$`), "zero_grad", evidence{phase: ZeroGrad}, "torch/optim/optimizer.py Optimizer.zero_grad"},
	{lazyregexp.New(`(^|/)torch/optim/optimizer\.py$`), "wrapper", evidence{phase: Step, optimizer: true}, "torch/optim/optimizer.py Optimizer.profile_hook_step.<locals>.wrapper"},
	{lazyregexp.New(`(^|/)torch/optim/lbfgs\.py$`), "", evidence{phase: Step, optimizer: true, closures: true}, "torch/optim/lbfgs.py LBFGS.step"},
	{lazyregexp.New(`(^|/)(torch/optim|apex/optimizers|bitsandbytes/optim|deepspeed/ops/(adam|lion|lamb))/`), "", evidence{phase: Step}, "torch/optim/adamw.py AdamW.step"},
	{lazyregexp.New(`(^|/)torch/(cuda/)?amp/grad_scaler\.py$`), "step unscale_ update _unscale_grads_", evidence{phase: Step}, "torch/amp/grad_scaler.py GradScaler.unscale_"},
	{lazyregexp.New(`(^|/)torch/nn/utils/clip_grad\.py$`), "", evidence{phase: Step}, "torch/nn/utils/clip_grad.py clip_grad_norm_"},

	// A model is made, loaded or moved.
	{lazyregexp.New(`(^|/)torch/nn/parallel/distributed\.py$`), "__init__ _ddp_init_helper", evidence{phase: Setup, object: Bucket}, "torch/nn/parallel/distributed.py DistributedDataParallel._ddp_init_helper"},
	{moduleBase, "_apply convert to cuda to_empty _load_from_state_dict load_state_dict", evidence{phase: Setup, object: Parameter}, "torch/nn/modules/module.py Module._apply"},
	{lazyregexp.New(`(^|/)torch/nn/(parameter|init)\.py$`), "", evidence{phase: Setup, object: Parameter}, "torch/nn/parameter.py Parameter.__new__"},
	{modules, "__init__ reset_parameters", evidence{phase: Setup, object: Parameter}, "torch/nn/modules/linear.py Linear.__init__"},
	{lazyregexp.New(`(^|/)(torch/serialization|safetensors/torch)\.py$`), "", evidence{phase: Setup, object: Parameter}, "torch/serialization.py load"},
	{lazyregexp.New(`(^|/)transformers/modeling_utils\.py$`), "from_pretrained _load_pretrained_model _load_state_dict_into_meta_model", evidence{phase: Setup, object: Parameter}, "transformers/modeling_utils.py PreTrainedModel.from_pretrained"},

	// Data.
	{lazyregexp.New(`(^|/)torch/utils/data/`), "", evidence{phase: Data}, "torch/utils/data/dataloader.py _BaseDataLoaderIter.__next__"},
	{lazyregexp.New(`(^|/)accelerate/(utils/operations|data_loader)\.py$`), "send_to_device __iter__", evidence{phase: Data}, "accelerate/utils/operations.py send_to_device"},
	{lazyregexp.New(`(^|/)(lightning|pytorch_lightning|lightning_fabric)/.*apply_func\.py$`), "move_data_to_device batch_to", evidence{phase: Data}, "lightning_fabric/utilities/apply_func.py move_data_to_device"},

	// No gradients are wanted.
	{lazyregexp.New(`(^|/)torch/(utils/_contextlib|autograd/grad_mode)\.py$`), "decorate_context", evidence{phase: Evaluation, decorator: true}, "torch/utils/_contextlib.py context_decorator.<locals>.decorate_context"},
	{lazyregexp.New(`(^|/)transformers/trainer\w*\.py$`), "evaluate predict evaluation_loop prediction_loop prediction_step", evidence{phase: Evaluation}, "transformers/trainer.py Trainer.evaluation_loop"},
	{lazyregexp.New(`(^|/)(lightning|pytorch_lightning)/.*(evaluation|prediction)_loop\.py$`), "", evidence{phase: Evaluation}, "lightning/pytorch/loops/evaluation_loop.py _EvaluationLoop.run"},
	{anywhere, "validation_step test_step predict_step", evidence{phase: Evaluation}, "model.py Classifier.validation_step"},
}

var (
	// torch::autograd::Engine::evaluate_function,
	// torch::autograd::generated::AddmmBackward0::apply.
	engine  = lazyregexp.New(`^torch::autograd::(python::Python)?Engine::|(^|::)\w+Backward\d*::apply(\(|$)|^torch::autograd::PyNode::apply`)
	forward = lazyregexp.New(`^torch::nn::\w+Impl::forward(\(|$)`)
	step    = lazyregexp.New(`^torch::optim::\w+::step(\(|$)`)

	// at::_ops::softmax_int::call, …::redispatch.
	operator = lazyregexp.New(`(?:^| )at::_ops::(\w+)::(?:call|redispatch)(?:\(|$)`)

	// at::cuda::getNewWorkspace (a local symbol in wheels; its caller
	// at::cuda::getCurrentCUDABlasHandle is not), at::cuda::getCUDABlasLtWorkspace,
	// at::cuda::blas::parseChosenWorkspaceSize.
	workspace = lazyregexp.New(`(?i)(^|::)get\w*workspace\w*(\(|$)|(^|::)\w*cublas\w*workspace\w*(\(|$)`)
)

// toDevice are operators that copy a tensor to another device, if Python calls them.
var toDevice = map[string]bool{"to_dtype_layout": true, "to_device": true, "to_other": true, "_to_copy": true}

// factories are operators that need no tensor.
var factories = set(`empty_memory_format empty_strided zeros ones full rand randn randint randint_low arange arange_start
	arange_start_step linspace eye randperm normal_float_float`)

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// evidenceOf returns what one frame shows.
func evidenceOf(f *callstack.Frame) evidence {
	if !f.Python {
		return native(f.Function)
	}
	if i := ruleOf(f); i >= 0 {
		return rules[i].evidence
	}
	return evidence{}
}

// ruleOf returns the index of the rule for a frame of Python, or -1.
func ruleOf(f *callstack.Frame) int {
	name := method(f)
	for i := range rules {
		if (ruleMethods[i] == nil || ruleMethods[i][name]) && rules[i].file.MatchString(f.File) {
			return i
		}
	}
	return -1
}

// method returns the function of a Python frame without its class: "_init_group" of
// "Adam._init_group".
func method(f *callstack.Frame) string { return f.Function[strings.LastIndexByte(f.Function, '.')+1:] }

// ruleMethods has the methods of each rule; nil: all.
var ruleMethods = func() (list []map[string]bool) {
	for i := range rules {
		var m map[string]bool
		if rules[i].methods != "" {
			m = set(rules[i].methods)
		}
		list = append(list, m)
	}
	return list
}()

// native returns what a function of C++ shows. Most names are answered without a regular
// expression.
func native(function string) (e evidence) {
	switch {
	case strings.Contains(function, "at::_ops::"):
		if m := operator.FindStringSubmatch(function); m != nil {
			e.operator = m[1]
		}
	case strings.HasPrefix(function, "torch::autograd::AccumulateGrad::"):
		e.phase, e.object = Backward, Gradient
	case strings.HasPrefix(function, "c10d::Reducer::Reducer"), strings.HasPrefix(function, "c10d::Reducer::initialize_buckets"):
		e.phase, e.object = Setup, Bucket
	case strings.Contains(function, "torch::autograd::") && engine.MatchString(function):
		e.phase = Backward
	case strings.HasPrefix(function, "torch::nn::") && forward.MatchString(function):
		e.phase = Forward
	case strings.HasPrefix(function, "torch::optim::") && step.MatchString(function):
		e.phase, e.optimizer = Step, true
	case strings.HasPrefix(function, "at::cuda::getCurrentCUDA"), strings.Contains(function, "orkspace") && workspace.MatchString(function):
		e.object = Workspace
	}
	return e
}
