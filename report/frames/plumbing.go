// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"slices"
	"strings"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// plumbing are functions of PyTorch and of Python that only hand a call on, by ShortFile and name.
// Before Python 3.11 a function has no class in its name.
var plumbing = map[string][]string{
	"contextlib.py":               {"inner"},
	"functools.py":                {"_method", "wrapper"},
	"torch/_compile.py":           {"inner"},
	"torch/_dynamo/eval_frame.py": {"__call__", "_fn"},
	"torch/_ops.py":               {"__call__"},
	"torch/_tensor.py":            {"wrapped"},
	"torch/amp/autocast_mode.py":  {"decorate_autocast", "decorate_bwd", "decorate_fwd"},
	"torch/fx/graph_module.py":    {"__call__", "call_wrapped"},
	"torch/nn/modules/module.py":  {"__call__", "_call_impl", "_slow_forward", "_wrapped_call_impl", "inner"},
	"torch/optim/lr_scheduler.py": {"wrapper"},
	"torch/optim/optimizer.py":    {"_use_grad", "maybe_fallback", "wrapper"},
	"torch/utils/_contextlib.py":  {"decorate_context"},
	"torch/utils/_device.py":      {"__torch_function__"},
}

// IsPlumbing reports whether a frame is of a library's function that only hands a call on, such as
// Module._wrapped_call_impl: it says nothing that its caller and its callee do not.
func IsPlumbing(f *callstack.Frame) bool {
	if !f.Python || IsUser(f) {
		return false
	}
	name := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
	return slices.Contains(plumbing[ShortFile(f.File)], name)
}

// Below returns what the frame at an index called, outermost first: functions in Python and own
// ones without plumbing, then the native function that these called, as "at::_ops::linear::call".
func Below(list []callstack.Frame, at int) []string {
	var calls []string
	for i := at - 1; i > 0; i-- {
		if f := &list[i]; (f.Python || IsUser(f)) && !f.Mark && !IsPlumbing(f) {
			calls = append(calls, ShortName(f))
		}
	}
	if n, callee := Leaf(list); n > 0 && n <= at && callee != "" {
		calls = append(calls, callee)
	}
	return calls
}
