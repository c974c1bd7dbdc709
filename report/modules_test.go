// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

func moduleShare(path string, kind modelpart.Kind, bytes uint64) HeldShare {
	l := &HolderLine{Held: ledger.Held{Holder: ledger.Holder{Path: path}, Bytes: bytes}}
	l.Parts[kind] = bytes
	return HeldShare{Line: l, Bytes: bytes}
}

// Parameters, buffers and gradients carry the name of their module, and nothing else does.
func TestMemoryHasTheNameOfItsModule(t *testing.T) {
	for _, c := range []struct {
		path string
		kind modelpart.Kind
		want string
	}{
		{"model.blocks.*.mlp.*.weight", modelpart.Weight, "model.blocks.*.mlp.*"},
		{`local "model".blocks.*.weight of main() (train.py:7)`, modelpart.Weight, "model.blocks.*"},
		{"model.blocks.*.weight.grad", modelpart.Gradient, "model.blocks.*"},
		{"model.norm.running_mean", modelpart.Buffer, "model.norm"},
		{"metrics.history[*]", modelpart.None, ""},
		{"optimizer.state[*]['exp_avg']", modelpart.State, ""},
		{"optimizer.param_groups[*]['params'][*].grad", modelpart.Gradient, ""},
		{"weights[*]", modelpart.Weight, ""},
		{"weight", modelpart.Weight, ""},
		{".weight", modelpart.Weight, ""},
		{"", modelpart.Weight, ""},
	} {
		if got := moduleOfAll([]HeldShare{moduleShare(c.path, c.kind, 80)}, 100); got != c.want {
			t.Errorf("%s: %q, want %q", c.path, got, c.want)
		}
	}
}

// A name stands for most of the memory: of several modules it is what they lie in.
func TestSeveralModulesHaveTheNameOfWhatTheyLieIn(t *testing.T) {
	w := func(path string, bytes uint64) HeldShare { return moduleShare(path+".weight", modelpart.Weight, bytes) }
	for _, c := range []struct {
		name   string
		shares []HeldShare
		want   string
	}{
		{"of one parent", []HeldShare{w("model.blocks.*.mlp.fc", 40), w("model.blocks.*.mlp.proj", 40)}, "model.blocks.*.mlp"},
		{"one in the other", []HeldShare{w("model.blocks.*", 40), w("model.blocks.*.mlp", 40)}, "model.blocks.*"},
		{"names that begin alike", []HeldShare{w("model.head", 40), w("model.headless", 40)}, "model"},
		{"a small one elsewhere", []HeldShare{w("model.blocks.*.mlp", 78), w("model.norm", 2)}, "model.blocks.*.mlp"},
		{"two without a parent", []HeldShare{w("encoder.fc", 50), w("decoder.fc", 40)}, "encoder.fc and decoder.fc"},
		{"more of them", []HeldShare{w("a.x", 20), w("b.x", 40), w("c.x", 20), w("d.x", 20)}, "b.x and 3 more"},
		{"the parent is self", []HeldShare{w(`local "self".q`, 50), w(`local "self".k`, 40)}, "self.q and self.k"},
		{"self alone", []HeldShare{w(`local "self"`, 90)}, "self"},
		{"half is no module's", []HeldShare{w("model.fc", 50), moduleShare("cache[*]", modelpart.None, 50)}, ""},
		{"half has no holder", []HeldShare{w("model.fc", 50), {Bytes: 50}}, ""},
		{"nothing is known", nil, ""},
	} {
		if got := moduleOfAll(c.shares, 100); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
