// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"
	"testing"
	"unicode"

	"github.com/vramprof/vramprof/tracer/holders"
)

var (
	mainModule = holders.Root{Kind: holders.RootModule, Name: "__main__"}
	attr       = func(name string) holders.Step { return holders.Step{Kind: holders.StepAttr, Name: name, Class: "x"} }
	child      = func(name string) holders.Step { return holders.Step{Kind: holders.StepChild, Name: name, Class: "x"} }
	key        = func(name string) holders.Step { return holders.Step{Kind: holders.StepKey, Name: name, Class: "x"} }
	element    = holders.Step{Kind: holders.StepIndex, Class: "x"}
)

func local(kind holders.RootKind, name string) holders.Root {
	return holders.Root{Kind: kind, Name: name, Function: "main", File: "train.py", Line: 7}
}

// holderCases has each kind of root and of step.
var holderCases = []struct {
	holder        *holders.Holder
	parts, frames string // separated by |
}{
	{holders.NewHolder(mainModule, attr("model"), child("layers"), child("3"), child("weight")),
		"model|.layers|.*|.weight", "__main__|model|layers.*|weight"},
	{holders.NewHolder(mainModule, attr("optimizer"), attr("state"), holders.Step{Kind: holders.StepKey}, key("exp_avg")),
		"optimizer|.state|[*]|['exp_avg']", "__main__|optimizer|state[*]|['exp_avg']"},
	{holders.NewHolder(mainModule, attr("losses"), element, holders.Step{Kind: holders.StepGraph}),
		"losses|[*]| (autograd graph)", "__main__|losses[*] (autograd graph)"},
	{holders.NewHolder(mainModule, attr("f"), holders.Step{Kind: holders.StepCell, Name: "x", Class: "x"}, holders.Step{Kind: holders.StepGrad}),
		"f|.<closure x>|.grad", "__main__|f|<closure x>|grad"},
	{holders.NewHolder(mainModule, attr("g"), holders.Step{Kind: holders.StepLocal, Name: "x", Function: "gen"}, holders.Step{Kind: holders.StepItem, Index: 1}),
		"g|.<local x of gen()>|[*]", "__main__|g|<local x of gen()>[*]"},
	{holders.NewHolder(mainModule, attr("q"), holders.Step{Kind: holders.StepElement}, holders.Step{Kind: holders.StepEntry}, holders.Step{Kind: holders.StepBase}),
		"q|[*]|.keys()|._base", "__main__|q[*]|keys()|_base"},
	{holders.NewHolder(mainModule, attr("y"), holders.Step{Kind: holders.StepGraph}, holders.Step{Kind: holders.StepContext}, holders.Step{Kind: holders.StepHook}, holders.Step{Kind: holders.StepField, Class: "Thing"}),
		"y| (autograd graph)|.<ctx>|.<hook>|.<Thing>", "__main__|y (autograd graph)|<ctx>|<hook>|<Thing>"},
	{holders.NewHolder(holders.Root{Kind: holders.RootModule, Name: "lib.cache"}, attr("entries"), key("a\x1b[31m")),
		"lib.cache|.entries|['a[*m']", "lib.cache|entries|['a[*m']"},
	{holders.NewHolder(holders.Root{Kind: holders.RootModule}), "?", "a module|?"},
	{holders.NewHolder(local(holders.RootLocal, "outs"), element), `local "outs"|[*]`, "main() (train.py:7)|outs[*]"},
	{holders.NewHolder(local(holders.RootTemporary, ""), element), "temporary|[*]", "main() (train.py:7)|temporary[*]"},
	{holders.NewHolder(local(holders.RootGlobals, ""), attr("x")), "globals|.x", "main() (train.py:7)|globals|x"},
	{holders.NewHolder(holders.Root{Kind: holders.RootTemporary}), "temporary", "a function|temporary"},
	{holders.NewHolder(holders.Root{Kind: holders.RootCycle, Classes: "Trainer"}, attr("held")), "cycle of Trainer|.held", "cycle of Trainer|held"},
	{holders.NewHolder(holders.Root{Kind: holders.RootNative, Classes: "in use by the running step"}), "in use by the running step", "in use by the running step"},
	{holders.NewHolder(holders.Root{}), "no holder found", "no holder found"},
}

// TestHolderFramesOfEachRootAndStep: others draw flame graphs and profiles of them.
func TestHolderFramesOfEachRootAndStep(t *testing.T) {
	for _, c := range holderCases {
		if got := strings.Join(c.holder.Frames(), "|"); got != c.frames {
			t.Errorf("frames of %s are %q, want %q", c.holder, got, c.frames)
		}
		n := new(HolderNode)
		var parts []string
		for _, n := range n.path(c.holder)[1:] {
			parts = append(parts, n.Name)
		}
		if got := strings.Join(parts, "|"); got != c.parts {
			t.Errorf("nodes of %s are %q, want %q", c.holder, got, c.parts)
		}
	}
}

// TestNodesReadAsThePath: without a graph, which a path has at its end.
func TestNodesReadAsThePath(t *testing.T) {
	for _, c := range holderCases {
		path := strings.Join(c.holder.Parts(), "") + c.holder.Root().Place()
		if want := c.holder.Pattern(); path != want && c.holder.Relation() != holders.Graph {
			t.Errorf("nodes read %q, the path %q", path, want)
		}
	}
}

func TestFramesOfHoldersHaveNoControlCharacters(t *testing.T) {
	bad := "a\x1b]0;x\a\nb\u202e"
	for _, kind := range []holders.RootKind{holders.RootModule, holders.RootLocal, holders.RootTemporary, holders.RootGlobals, holders.RootCycle, holders.RootNative} {
		h := holders.NewHolder(holders.Root{Kind: kind, Name: bad, Function: bad, File: bad, Class: bad, Classes: bad}, attr(bad), key(bad))
		for _, f := range h.Frames() {
			if strings.ContainsFunc(f, unicode.IsControl) {
				t.Errorf("frame %q", f)
			}
		}
	}
}

// storagesOf are storages of 1 MiB, on cuda:0.
func storagesOf(list ...*holders.Holder) *holders.Result {
	r := new(holders.Result)
	for _, h := range list {
		r.Storages = append(r.Storages, holders.Storage{Bytes: 1 << 20, DeviceType: 1, Holder: h})
	}
	return r
}

func TestHolderTreeAddsUp(t *testing.T) {
	weight, bias := holders.NewHolder(mainModule, attr("model"), child("0"), child("weight")), holders.NewHolder(mainModule, attr("model"), child("7"), child("bias"))
	outs, history := holders.NewHolder(local(holders.RootLocal, "outs"), element), holders.NewHolder(mainModule, attr("history"))
	before := storagesOf(weight, history)
	after := storagesOf(weight, bias, outs, outs, outs)
	after.Storages = append(after.Storages, holders.Storage{Bytes: 5, Holder: outs}) // on the CPU
	root := HolderTree(after, before, "cuda:0")
	if root.Bytes != 5<<20 || root.Storages != 5 || root.Grown != (Growth{3 << 20, 3}) || len(root.Children) != 3 {
		t.Fatalf("the tree is %+v", root)
	}
	locals, model, gone := root.Children[0], root.Children[1], root.Children[2]
	if locals.Name != `local "outs"` || locals.Place != " of main() (train.py:7)" || locals.Own != 0 || locals.Children[0].Own != 3<<20 || locals.Children[0].OwnCount != 3 {
		t.Errorf("locals are %+v", locals)
	}
	if model.Name != "model" || model.Bytes != 2<<20 || len(model.Children) != 1 || len(model.Children[0].Children) != 2 || model.Grown.Bytes != 1<<20 {
		t.Errorf("the model is %+v", model)
	}
	if gone.Name != "history" || gone.Bytes != 0 || gone.Grown != (Growth{-1 << 20, -1}) {
		t.Errorf("what went away is %+v", gone)
	}
	if all := HolderTree(after, nil, ""); all.Bytes != 5<<20+5 || all.Grown != (Growth{}) {
		t.Errorf("the tree of all devices is %+v", all)
	}
}

func TestDetailsOfAHolder(t *testing.T) {
	h := Holders{Result: storagesOf(holders.NewHolder(local(holders.RootLocal, "outs"), element), holders.NewHolder(mainModule, attr("model")))}
	h.Result.Storages[0].Container = holders.Container{Address: 1, Class: "list", Entries: 435}
	outs := h.Lines()[0]
	if got := DetailText(&outs); got != "list of 435" {
		t.Errorf("details are %q", got)
	}
	for container, want := range map[string]string{"list": "list of 435, main() is at line 61", "": "main() is at line 61"} {
		at := local(holders.RootLocal, "outs")
		at.Now = 61
		h.Result = storagesOf(holders.NewHolder(at, element))
		if container != "" {
			h.Result.Storages[0].Container = holders.Container{Address: 1, Class: container, Entries: 435}
		}
		if lines := h.Lines(); DetailText(&lines[0]) != want || lines[0].Path != `local "outs"[*] of main() (train.py:7)` {
			t.Errorf("details of %q are %q, want %q", lines[0].Path, DetailText(&lines[0]), want)
		}
	}
}
