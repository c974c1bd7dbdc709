// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Two blocks save 8 and 4 MiB each; the backward pass frees them in reverse order, each after it
// has allocated a gradient.
const twoBlocks = `w 2 weight; x 1 batch; a 8 first; b 4 second; c 8 first; d 4 second; h 1 head
	g1 1 engine; -h; g2 2 engine; -d; -g1; g3 1 engine; -c; -g2; g4 2 engine; -b; -g3; g5 1 engine; -a; -g4; -g5
	x2 1 batch; e 1 head; i 1 engine; -e; -i; -x; -x2`

// TestOffloadedMemoryLeavesAfterItsUse: and comes back for the node of the backward pass that frees
// it.
func TestOffloadedMemoryLeavesAfterItsUse(t *testing.T) {
	p, _ := programOf(t, twoBlocks)
	if got := peakOf(t, p); got != 2+1+24+1+2 {
		t.Fatalf("peak %d as it ran", got)
	}
	low, high, seen, err := p.Offload(ParseCode("Block.forward"))
	if err != nil || seen.Count != 1 || seen.Bytes != 20*block { // the head saves d
		t.Fatal(seen, err)
	}
	// a and b are live together, b and c, c and d; in the backward pass one of them and two
	// gradients.
	if got := peakOf(t, low); got != 2+1+12 {
		t.Errorf("at least %d MiB", got)
	}
	// The function keeps all of its variables until it returns: 24 MiB are two calls, each of 12.
	// Copies of the weight come on top.
	if got := peakOf(t, high); got < 2+1+12 || got > 2+1+12+1+4 {
		t.Errorf("at most %d MiB", got)
	}
	// The line of the training loop that calls all modules saves more than the blocks do.
	_, _, all, err := p.Offload(ParseCode("train.py:11"))
	if err != nil || all.Bytes <= seen.Bytes {
		t.Error(all, err)
	}
	if _, _, _, err := p.Offload(ParseCode("Other.forward")); err == nil || !strings.Contains(err.Error(), "allocates nothing") {
		t.Error(err)
	}
	none, _ := programOf(t, "a 8 first; -a; g 1 engine; -g")
	if _, _, _, err := none.Offload(ParseCode("Block.forward")); err == nil || !strings.Contains(err.Error(), "saves nothing") {
		t.Error(err)
	}
}

func TestCodeIsALineOrAFunction(t *testing.T) {
	for text, line := range map[string]bool{"train.py:72": true, "model.py:Block.forward": false, "Block.forward": false, "train.py:0": false} {
		if c := ParseCode(text); (c.Line.Line > 0) != line || c.String() != text {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

// TestWhatTheBackwardPassNeedsIsNotDropped: a line of a forward pass that runs three times and more
// keeps what it saves, which nobody can drop.
func TestWhatTheBackwardPassNeedsIsNotDropped(t *testing.T) {
	p, _ := programOf(t, `w 2 weight
	x 1 batch; a 8 first; b 8 second; c 8 first; d 8 second; e 8 first; f 8 second; g 8 first; h 1 head; i 1 engine; -h; -g; -f; -e; -d; -c; -b; -a; -i; y 1 batch; j 1 head; z 1 batch`)
	model := func(f *callstack.Frame) bool { return f.File == "/app/model.py" }
	if lines := p.Lines(9, model); len(lines) != 0 {
		t.Errorf("%v", lines)
	}
	if _, _, err := p.Without(Line{"model.py", 41}); err == nil || !strings.Contains(err.Error(), "--offload") {
		t.Error(err)
	}
}

// TestASecondRecordingShowsWhatScales: its stack traces have other numbers, and its steps another
// size.
func TestASecondRecordingShowsWhatScales(t *testing.T) {
	pass := func(a, b string) string {
		return "x 1 batch; a " + a + " first; b " + b + " second; g 2 engine; -b; -a; -g; -x\n"
	}
	p, _ := programOf(t, pass("4", "6")+pass("4", "6"))
	other, _ := programOf(t, "w 9 weight\n"+pass("6", "9")+pass("6", "9"))
	p.Beside(other)
	low, high, seen, err := p.Batch(2)
	if err != nil || seen.Ratio < 1.49 || seen.Ratio > 1.51 {
		t.Fatal(seen, err)
	}
	if a, b := peakOf(t, low), peakOf(t, high); a != 1+8+12+2 || b != a {
		t.Errorf("peaks %d and %d", a, b)
	}
	// With another change, both captures are changed before they are compared.
	done := As(p)
	for _, r := range []Remedy{{Kind: Recompute, Function: ParseFunction("Block.forward")}, {Kind: Batches, Factor: 2}} {
		if done, _, err = done.Apply(r); err != nil {
			t.Fatal(r, err)
		}
	}
	same, _ := programOf(t, pass("4", "6")+pass("4", "6"))
	p.Beside(same)
	if _, _, _, err := p.Batch(2); err == nil || !strings.Contains(err.Error(), "one size") && !strings.Contains(err.Error(), "differs in size") {
		t.Errorf("the same size: %v", err)
	}
	strange, _ := programOf(t, "x 1 batch; a 12 head; b 12 kept; g 9 cublas; e 1 engine; -b; -a; -x\n")
	p.Beside(strange)
	if _, _, _, err := p.Batch(2); err == nil || !strings.Contains(err.Error(), "not of one program") {
		t.Errorf("another program: %v", err)
	}
}
