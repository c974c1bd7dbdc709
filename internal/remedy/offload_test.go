// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"slices"
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

// TestWhatTwoOperatorsSaveIsBroughtBackTwice: save_on_cpu copies each saving of a tensor by itself.
// A relu saves b, and a linear layer whose node does not free it.
func TestWhatTwoOperatorsSaveIsBroughtBackTwice(t *testing.T) {
	pass := func(layer, end string) string {
		return "w 2 weight; x 1 batch; a 8 first; b 8 first; c 4 second; h 1 head; g 1 engine; -h; -c; " + layer + "; r 8 relued; -g; -b; -gx; q 1 engine; -a; -r; -q" + end + "; -x; e 1 batch"
	}
	copies := func(layer, end string) (list []int) {
		p, _ := programOf(t, pass(layer, end))
		low, high, _, err := p.Offload(ParseCode("Block.forward"))
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []*Program{low, high} {
			peakOf(t, q)
			n := 0
			for i := len(p.Trace.Blocks); i < len(q.Trace.Blocks); i++ {
				if q.size(uint32(i)) == 8*block {
					n++
				}
			}
			list = append(list, n)
		}
		return list
	}
	if got := copies("gx 8 addmm; gw 2 addmm_w", "; -gw"); !slices.Equal(got, []int{3, 3}) {
		t.Errorf("a, b and b again: %v", got)
	}
	// The gradient of what a frozen weight multiplies needs the weight only.
	if got := copies("gx 8 addmm; gw 2 engine", "; -gw"); !slices.Equal(got, []int{2, 2}) {
		t.Errorf("a and b: %v", got)
	}
}

// TestWhatHooksBringBackEndsBeforeSums: the engine sums the gradient of a bias after the node's
// work, and frees only then what the node saved itself.
func TestWhatHooksBringBackEndsBeforeSums(t *testing.T) {
	const pass = `w 2 weight; x 1 batch; a 8 first; b 1 second; h 1 head
		g 1 engine; -h; -b; gx 1 addmm; gw 1 addmm_w; s 16 summed; -a; -g; -gx; -gw; -s; -x; e 1 batch`
	p, _ := programOf(t, pass)
	if got := peakOf(t, p); got != 2+1+8+3+16 {
		t.Fatalf("peak %d as it ran", got)
	}
	low, _, _, err := p.Offload(ParseCode("Block.forward"))
	if err != nil || peakOf(t, low) != 2+3+16 { // the batch leaves too
		t.Errorf("offloaded, at least %d MiB: %v", peakOf(t, low), err)
	}
	again, _, _, err := p.Checkpoint(ParseFunction("Block.forward"))
	if err != nil || peakOf(t, again) != 2+1+3+16 {
		t.Errorf("recomputed, %d MiB: %v", peakOf(t, again), err)
	}
}

// TestTheNodeThatFreesABlockShowsWhichOperationSavedIt: the head saves nothing of the last block,
// and the next that is saved is outside of it.
func TestTheNodeThatFreesABlockShowsWhichOperationSavedIt(t *testing.T) {
	p, _ := programOf(t, `w 2 weight; x 1 batch; a 8 second; b 1 product; h 1 head; -b
		g 1 engine; -h; gx 1 addmm; gw 1 addmm_w; -a; -g; -gx; -gw; -x; e 1 batch`)
	_, _, seen, err := p.Offload(ParseCode("Block.forward"))
	if err != nil || seen.Bytes < 8*block {
		t.Errorf("%d MiB leave the GPU, %v", seen.Bytes/block, err)
	}
}

// TestIndicesOfAPoolStayWhereItRan: a block of the network uses the output of a pool before it, but
// not its indices.
func TestIndicesOfAPoolStayWhereItRan(t *testing.T) {
	p, _ := programOf(t, `w 2 weight; x 1 batch; s 4 stem; o 1 pool; i 8 pool; a 8 first; b 1 second; h 1 head
		g 1 engine; -h; -b; q 1 engine; -a; -o; -g; p 4 pooled; -i; -s; -q; -p; -x; e 1 batch`)
	_, _, seen, err := p.Offload(ParseCode("Block.forward"))
	if err != nil || seen.Bytes != (1+8)*block { // o and a
		t.Errorf("%d MiB leave the GPU, %v", seen.Bytes/block, err)
	}
}

// TestWhatACallerKeepsIsNoDroppedGraph: the last of two calls returns what the caller keeps in a
// variable until it has used it; what the first one returned, the second one saves.
func TestWhatACallerKeepsIsNoDroppedGraph(t *testing.T) {
	p, _ := programOf(t, `w 2 weight; x 1 batch; a 4 first; b 8 second; c 4 first; d 8 second; h 1 head; i 32 head; -d
		g 1 engine; -i; -h; -c; g2 1 engine; -b; -a; -g; -g2; -x; e 1 batch`)
	low, high, _, err := p.Offload(ParseCode("Block.forward"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []*Program{low, high} {
		if got := peakOf(t, q); got < 8+1+32 {
			t.Errorf("%d MiB, without the variable", got)
		}
	}
}

// TestALossInChunksIsOneStep: forward and backward passes of its chunks alternate, and the last
// backward pass goes through what the blocks saved before the first one.
func TestALossInChunksIsOneStep(t *testing.T) {
	pass := func(size string) string {
		return strings.ReplaceAll(`x 1 batch; a N first; b N second; c N first; d N second
		h 1 head; g 1 engine; -h; -g; h 1 head; g 1 engine; -h; -g
		g1 1 engine; -d; g2 1 engine; -c; -g1; g3 1 engine; -b; -g2; g4 1 engine; -a; -g3; g5 1 engine; -g4; -g5; -x
		`, "N", size)
	}
	p, _ := programOf(t, "w 2 weight\n"+pass("8")+pass("8"))
	if len(p.passes) != 2 {
		t.Errorf("%d passes", len(p.passes))
	}
	low, _, _, err := p.Checkpoint(ParseFunction("Block.forward"))
	if err != nil || peakOf(t, low) >= peakOf(t, p) {
		t.Errorf("recomputed: %v", err)
	}
	other, _ := programOf(t, "w 2 weight\n"+pass("12")+pass("12"))
	p.Beside(other)
	low, high, _, err := p.Batch(2)
	if err != nil || peakOf(t, low) < 4*16 || peakOf(t, low) != peakOf(t, high) {
		t.Errorf("batches twice as large: %v", err)
	}
}

// TestABackwardPassThatIsDifferentiatedIsNotChanged: another one frees what its nodes made.
func TestABackwardPassThatIsDifferentiatedIsNotChanged(t *testing.T) {
	p, _ := programOf(t, `w 2 weight; x 1 batch; a 4 first; b 8 second; g 3 addmm; n 1 head; h 1 head; q 1 relued; -h; -n; -g; -b; -a; -q; -x; e 1 batch`)
	for name, change := range map[string]func() error{
		"checkpoint": func() error { _, _, _, err := p.Checkpoint(ParseFunction("Block.forward")); return err },
		"offload":    func() error { _, _, _, err := p.Offload(ParseCode("Block.forward")); return err },
	} {
		if err := change(); err == nil || !strings.Contains(err.Error(), "differentiated too") {
			t.Errorf("%s: %v", name, err)
		}
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
