// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"
	"testing"
)

// TestWhatHasNoHolderIsNoFurtherHolder: "also: no holder found[*]" was said of a list that nothing
// holds.
func TestWhatHasNoHolderIsNoFurtherHolder(t *testing.T) {
	for kind, want := range map[RootKind]bool{RootModule: true, RootLocal: true, RootNone: false, RootCycle: false, RootNative: false} {
		if h := (&Holder{root: &Root{Kind: kind}}); h.isPath() != want {
			t.Errorf("%v: %v", kind, h.isPath())
		}
	}
}

// TestKeysWithNumbersAreOneLine: "runner.cache['image-1003']" was a line of its own, as each of the
// other images.
func TestKeysWithNumbersAreOneLine(t *testing.T) {
	main := Root{Kind: RootModule, Name: "__main__"}
	attr := func(name string) Step { return Step{Kind: StepAttr, Name: name} }
	key := func(name string) Step { return Step{Kind: StepKey, Name: name} }
	for _, c := range []struct {
		steps                  []Step
		path, pattern, lasting string
		many                   bool
	}{
		{[]Step{attr("cache"), key("image-1003")}, "cache['image-1003']", "cache['image-*']", "cache", true},
		{[]Step{attr("cache"), {Kind: StepKey, Name: "a9f", InTable: true}}, "cache['a9f']", "cache[*]", "cache", true},
		{[]Step{attr("best"), key("layers.3.fc1.weight")}, "best['layers.3.fc1.weight']", "best['layers.*.fc*.weight']", "best", true},
		{[]Step{attr("batch"), key("labels")}, "batch['labels']", "batch['labels']", "batch['labels']", false},
		{[]Step{attr("fc1"), {Kind: StepChild, Name: "weight"}}, "fc1.weight", "fc1.weight", "fc1.weight", false},
		{[]Step{attr("lora_A"), {Kind: StepChild, Name: "customer_17", InDict: true}, {Kind: StepChild, Name: "weight"}}, "lora_A.customer_17.weight", "lora_A.customer_*.weight", "lora_A", true},
	} {
		h := NewHolder(main, c.steps...)
		thing, many := h.thing()
		if h.String() != c.path || h.Pattern() != c.pattern || thing != c.lasting || many != c.many {
			t.Errorf("%s, %s, %s, %v; want %s, %s, %s, %v", h, h.Pattern(), thing, many, c.path, c.pattern, c.lasting, c.many)
		}
	}
}

// TestFramesNameTheObjectWithItsPath: the object of an address is no step of its own, which a
// reader of the frames would join with a dot.
func TestFramesNameTheObjectWithItsPath(t *testing.T) {
	h := *NewHolder(Root{Kind: RootModule, Name: "__main__"}, Step{Kind: StepAttr, Name: "blocks", Class: "dict"}, Step{Kind: StepEntry, Class: "int"})
	h.object = "int"
	if got, want := strings.Join(h.Frames(), "|"), "__main__|blocks|keys() (int)"; got != want {
		t.Errorf("the frames are %q, want %q", got, want)
	}
}
