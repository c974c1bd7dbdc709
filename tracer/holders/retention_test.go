// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// TestStepsSayHowAPathKeepsMemory: names that only look alike do not.
func TestStepsSayHowAPathKeepsMemory(t *testing.T) {
	attr := func(name, class string) Step { return Step{Kind: StepAttr, Name: name, Class: class} }
	main := Root{Kind: RootModule, Name: "__main__"}
	key, index, grad, graph := Step{Kind: StepKey}, Step{Kind: StepIndex}, Step{Kind: StepGrad}, Step{Kind: StepGraph}
	ended := Root{Kind: RootLocal, Name: "x", Function: "evaluate", File: "eval.py", Line: 7, Ended: true}
	for _, c := range []struct {
		root  Root
		steps []Step
		want  retention.Set
	}{
		{main, []Step{attr("losses", "list"), index}, 0},
		{main, []Step{attr("losses", "list"), index, graph}, retention.Graph},
		{main, []Step{attr("w", "Parameter"), grad}, retention.Gradient},
		{Root{Kind: RootCycle, Classes: "Request, State"}, []Step{attr("cache", "Tensor")}, retention.Cycle},
		{main, []Step{attr("w", "Parameter"), grad, graph}, retention.Gradient | retention.Graph},
		{main, []Step{attr("grads", "list"), index}, 0},
		{main, []Step{attr("grad", "list"), index}, 0},
		{ended, []Step{index}, retention.EndedByError},
		{Root{Kind: RootModule, Name: "sys"}, []Step{attr("last_value", "ValueError"), attr("__traceback__", "traceback"), {Kind: StepLocal, Name: "x"}}, retention.LastError | retention.Traceback | retention.Frame},
		{main, []Step{attr("last_value", "Tensor")}, 0},
		{main, []Step{attr("Out", "dict"), key}, retention.Results},
		{main, []Step{attr("logOut", "dict"), key}, 0},
		{main, []Step{attr("embed", "_lru_cache_wrapper"), attr("cache", "dict"), key}, retention.Cache},
		{main, []Step{attr("embed", "Embedder"), attr("cache", "dict"), key}, 0},
		{main, []Step{attr("optimizer", "AdamW"), attr("state", "defaultdict"), {Kind: StepKey, ByTensor: true}, {Kind: StepKey, Name: "exp_avg"}}, retention.OptimizerState},
		{main, []Step{attr("server", "Server"), attr("state", "dict"), key}, 0},
		{main, []Step{attr("trainer", "T"), attr("state", "dict"), {Kind: StepKey, Name: "best"}}, 0},
		{main, []Step{attr("optimizer", "AdamW"), attr("param_groups", "list"), index}, retention.ParamGroups},
	} {
		if h := NewHolder(c.root, c.steps...); h.retention() != c.want|retention.Known {
			t.Errorf("%s: %b instead of %b", h, h.retention(), c.want|retention.Known)
		}
	}
}

func TestCachesOfKeysAndValuesAreFoundByTheirNames(t *testing.T) {
	attr := func(name, class string) Step { return Step{Kind: StepAttr, Name: name, Class: class} }
	main := Root{Kind: RootModule, Name: "__main__"}
	for _, c := range []struct {
		root  Root
		steps []Step
		want  modelpart.Kind
	}{
		{main, []Step{attr("past", "DynamicCache"), attr("layers", "list"), {Kind: StepIndex}, attr("keys", "Tensor")}, modelpart.KVCache},
		{main, []Step{attr("worker", "Worker"), attr("kv_caches", "list"), {Kind: StepIndex, Class: "Tensor"}}, modelpart.KVCache},
		{Root{Kind: RootLocal, Name: "past_key_values", Class: "tuple"}, []Step{{Kind: StepItem}}, modelpart.KVCache},
		{main, []Step{attr("attention", "Attention"), attr("cache_k", "Tensor")}, modelpart.KVCache},
		{main, []Step{attr("pool", "MHATokenToKVPool"), attr("k_buffer", "list"), {Kind: StepIndex}}, modelpart.KVCache},
		{main, []Step{attr("cache", "dict"), {Kind: StepKey, Name: "x"}}, modelpart.None},
		{main, []Step{attr("replay_buffer", "Buffer")}, modelpart.None},
	} {
		if h := NewHolder(c.root, c.steps...); h.part() != c.want {
			t.Errorf("%s: %v instead of %v", h, h.part(), c.want)
		}
	}
}
