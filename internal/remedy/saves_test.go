// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// TestOperatorsSaveWhatTheTablesSay compares the tables with the real PyTorch.
func TestOperatorsSaveWhatTheTablesSay(t *testing.T) {
	root := realtorch.Prepare(t)
	out, err := root.Command(root.Env(t, 1, 1<<30), "saves.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for lines := json.NewDecoder(strings.NewReader(string(out))); ; count++ {
		var x struct {
			Node  string
			Saves []string
		}
		if err := lines.Decode(&x); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		saves := slices.DeleteFunc(slices.Clone(x.Saves), func(s string) bool { return s == "copy" })
		inputs := 0
		for _, s := range saves {
			if s != "result" {
				inputs++
			}
		}
		result := len(saves) > inputs
		node := siteOf([]callstack.Frame{{Function: "torch::autograd::generated::" + x.Node + "::apply()"}}, &phase.Finder{}).node
		for name, table := range map[string]struct {
			is   *lazyregexp.Regexp
			want bool
		}{
			"its result":             {savesResult, result && inputs == 0},
			"an input and the other": {savesFactors, inputs > 1},
			"an input and a result":  {savesBoth, result && inputs == 1},
			"an input":               {savesInput, !result && inputs == 1 || len(x.Saves) == 1 && x.Saves[0] == "copy"},
		} {
			if got := table.is.MatchString(node); got != table.want {
				t.Errorf("%s saves %q: a table has %v for %s", node, x.Saves, got, name)
			}
		}
	}
	if count < 60 {
		t.Errorf("%d operators", count)
	}
}

// TestOverloadsAreTheirOperators: the functions of at::_ops have the overload in their names.
func TestOverloadsAreTheirOperators(t *testing.T) {
	for name, node := range map[string]string{
		"mul_Tensor": "mul", "mul__Tensor": "mul", "pow_Tensor_Scalar": "pow", "div_Tensor_mode": "div/2", "sum_dim_IntList": "sum", "_softmax": "softmax", "std_correction": "std",
		"leaky_relu_": "leakyrelu/1", "max_pool2d_with_indices": "maxpool2dwithindices", "clamp_min_Tensor": "clampmin",
	} {
		if !isOperator(name, node) {
			t.Errorf("%s is not %s", name, node)
		}
	}
	for name, node := range map[string]string{"max_pool2d": "max", "log_softmax_int": "log", "addmm": "mm", "mul_Tensor": "multensor2", "exp2": "exp"} {
		if isOperator(name, node) {
			t.Errorf("%s is %s", name, node)
		}
	}
}

// TestAFactorThatWasExpandedIsSmall: the node of a product makes two gradients of the size of the
// result. Where a sum takes the place of one, its factor is as small as the sum.
func TestAFactorThatWasExpandedIsSmall(t *testing.T) {
	copies := func(node string) (large, small int) {
		p, _ := programOf(t, "w 2 weight; x 1 batch; a 8 first; s 1 first; b 8 second; c 4 second; h 1 head; g 1 engine; -h; -c; "+node+"; -b; r 8 relued; -m; q 1 engine; -a; -r; -q; -s; -x; -g; e 1 batch")
		low, _, _, err := p.Offload(ParseCode("Block.forward"))
		if err != nil {
			t.Fatal(err)
		}
		peakOf(t, low)
		for i := len(p.Trace.Blocks); i < len(low.Trace.Blocks); i++ {
			switch low.size(uint32(i)) {
			case 8 * block:
				large++
			case block:
				small++
			}
		}
		return large, small
	}
	// The product frees b. Its other factor returns for the operator that saved it, too: s or a.
	if large, small := copies("m 8 muled; n 8 muled_2; u 1 summed; -n; -u"); large != 2 || small != 3 {
		t.Errorf("a small factor: %d large copies, %d small ones", large, small)
	}
	if large, small := copies("m 8 muled; n 8 muled_2; -n"); large != 2 || small != 2 {
		t.Errorf("a temporary block: %d large copies, %d small ones", large, small)
	}
}
