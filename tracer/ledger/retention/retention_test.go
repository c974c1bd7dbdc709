// SPDX-License-Identifier: Apache-2.0

package retention

import "testing"

func TestPathsOfOlderCapturesHaveTheirSet(t *testing.T) {
	for path, want := range map[string]Set{
		"losses[*] (autograd graph)":                                       Graph,
		`local "outs"[*] of evaluate() (eval.py:41), which an error ended`: EndedByError,
		"sys.last_value.__traceback__.<local x of f()>":                    LastError | Traceback | Frame,
		"Out[*]":                                                  Results,
		"embed.cache[*]":                                          Cache,
		"optimizer.state[*]['exp_avg']":                           OptimizerState,
		"optimizer.param_groups[*]['params'][*]":                  ParamGroups,
		"model.*.weight.grad":                                     Gradient,
		`local "model".a.grad of train() (train.py:7)`:            Gradient,
		`local "b".grad (autograd graph) of train() (train.py:7)`: Gradient | Graph,
		`local "self".gradients[*] of train() (train.py:7)`:       0,
		"": 0,
	} {
		if got := Read(0, path); got != want|Known {
			t.Errorf("%s: %b instead of %b", path, got, want|Known)
		}
	}
}

func TestASetOfACaptureIsBelievedAndItsPathIsNot(t *testing.T) {
	if got := Read(Known|Cache, "losses[*] (autograd graph)"); got != Known|Cache {
		t.Errorf("%b", got)
	}
	if got := Read(0xffff, ""); got&^all != 0 || !got.Has(Gradient) {
		t.Errorf("%b has what no version knows", got)
	}
}
