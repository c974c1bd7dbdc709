// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// TestSavedTensorsBelongToTheModulesOfTheGraphsParameters: a function belongs to the module whose
// parameter it takes, also one that is transposed. One without parameters lies between the nearest
// ones that have some, and the loss, behind the last one, has no module. A circle, which only a
// hostile process has, ends.
func TestSavedTensorsBelongToTheModulesOfTheGraphsParameters(t *testing.T) {
	model := NewHolder(Root{Kind: RootLocal, Name: "model"})
	child := func(h *Holder, name string) *Holder { return h.then(Step{Kind: StepChild, Name: name, Class: "Block"}) }
	blocks := child(model, "blocks")
	first, second := child(blocks, "0"), child(blocks, "1")
	fc1, fc2, norm := child(first, "fc1"), child(first, "fc2"), child(second, "norm")
	other := child(NewHolder(Root{Kind: RootModule, Name: "__main__"}), "other")

	f := savedFinder{search: &search{}, result: &Result{}}
	for _, h := range []*Holder{fc1, fc2, norm, other, norm} {
		f.graph = append(f.graph, savedNode{leaf: true, parameter: h})
	}
	add := func(next ...int32) int32 {
		i := int32(len(f.graph))
		st := &storage{result: len(f.result.Storages)}
		f.result.Storages = append(f.result.Storages, Storage{Part: modelpart.Saved})
		f.graph = append(f.graph, savedNode{next: next, saved: []*storage{st}})
		for _, k := range next {
			f.graph[k].users = append(f.graph[k].users, i)
		}
		return i
	}
	transposed := func(parameter int32) int32 { // it saves nothing
		i := add(parameter)
		f.graph[i].saved = nil
		return i
	}
	linear1 := add(transposed(0))       // 0: the transposed weight, 1: the function
	gelu := add(linear1)                // 2
	linear2 := add(gelu, transposed(1)) // 3: the transposed weight, 4
	residual := add(linear1, linear2)   // 5
	normed := add(residual, 2, 4)       // 6
	add(normed)                         // 7: the loss
	add(0, 3)                           // 8: of two models
	circle := add(normed)               // 9
	f.graph[circle].next = append(f.graph[circle].next, circle)
	f.graph[circle].users = append(f.graph[circle].users, circle)
	f.modules()
	for i, want := range []Module{
		1: {"model.blocks.0.fc1", true},
		2: {"model.blocks.0", false},
		4: {"model.blocks.0.fc2", true},
		5: {"model.blocks", false},
		6: {"model.blocks.1.norm", true},
		7: {}, 8: {}, 9: {},
	} {
		if got := f.result.Storages[i].Module; got != want && i != 0 && i != 3 {
			t.Errorf("function %d: %v instead of %v", i, got, want)
		}
	}
}
