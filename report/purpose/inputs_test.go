// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestOnlyAModelHasInputs: a buffer that a program without a model makes is none.
func TestOnlyAModelHasInputs(t *testing.T) {
	made := callstack.Frame{Function: "at::_ops::empty_memory_format::call"}
	line := callstack.Frame{Function: "handle", File: "/home/ada/serve.py", Line: 12, Python: true}
	stacks := reporttest.StackMap{
		1: {made, line},
		2: {{Function: "at::_ops::linear::call"}, {Function: "Linear.forward", File: "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", Line: 124, Python: true},
			{Function: "Module._call_impl", File: "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", Line: 1750, Python: true}, line},
	}
	s := &ledger.Snapshot{Processes: make([]ledger.Process, 2), Sites: []ledger.Site{
		{Process: 0, Stack: 1, Kind: ledger.Tensor},
		{Process: 1, Stack: 1, Kind: ledger.Tensor},
		{Process: 1, Stack: 2, Kind: ledger.Tensor},
	}}
	r := newStackReader(s, stacks)
	for i, want := range []Kind{Tensors, Inputs, Activations} {
		if got := r.of(&s.Sites[i]).kind; got != want {
			t.Errorf("site %d: %s, want %s", i, got, want)
		}
	}
}
