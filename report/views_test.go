// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

var snapshotViews = map[string]func(io.Writer, *ledger.Snapshot, Stacks, ViewOptions) error{"tree": WriteTree, "table": WriteTable}

func TestViewsOfASnapshotAreStable(t *testing.T) {
	for name, write := range snapshotViews {
		for width, s := range map[string]*ledger.Snapshot{"": torchSnapshot(), "c": testSnapshot()} {
			var b bytes.Buffer
			st := torchStacks()
			if width == "c" {
				st = testStacks()
			}
			if err := write(&b, s, st, ViewOptions{Width: 80}); err != nil {
				t.Fatal(err)
			}
			golden(t, name+width+"80.txt", b.Bytes())
			for line := range strings.Lines(b.String()) {
				if n := columns(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Errorf("%s: %d columns: %s", name, n, line)
				}
			}
		}
	}
}

func TestTheTreeAddsUpToTheGPUMemoryOfTheProfile(t *testing.T) {
	s, st := torchSnapshot(), torchStacks()
	var want int64
	for _, h := range Holdings(s) {
		if !h.Host() {
			want += h.Live
		}
	}
	root := callTree(s, st, ViewOptions{})
	var leaves func(b *branch) int64
	leaves = func(b *branch) int64 {
		sum, own := int64(0), b.bytes
		for _, c := range b.children {
			sum += leaves(c)
			own -= c.bytes
		}
		return sum + own
	}
	if want == 0 || root.bytes != want || leaves(root) != want {
		t.Errorf("the tree has %d, its branches %d, the profile %d", root.bytes, leaves(root), want)
	}
}

func TestADiffSaysWhichLineGrew(t *testing.T) {
	before, after, st := torchSnapshot(), torchSnapshot(), torchStacks()
	grown := &after.Sites[slices.IndexFunc(after.Sites, func(x ledger.Site) bool { return x.Kind == ledger.Tensor && x.Device == 0 })]
	grown.LiveBytes += 1 << 30
	after.Balances[after.BalanceOf(grown.Process, 0)].Usage += 1 << 30
	for i := range after.Tensors {
		if x := &after.Tensors[i]; x.Process == grown.Process && x.Device == grown.Device {
			x.LiveBytes += 1 << 30
		}
	}
	a, b := NewProfile(before, st, ProfileOptions{}), NewProfile(after, st, ProfileOptions{})
	var file, text bytes.Buffer
	if err := WriteDifference(&file, a, b); err != nil {
		t.Fatal(err)
	}
	read, err := ReadProfile(&file)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteDiff(&text, a, b, DiffOptions{Names: [2]string{"a.vram", "b.vram"}}); err != nil {
		t.Fatal(err)
	}
	golden(t, "diff80.txt", text.Bytes())
	var sum int64
	for _, x := range read.p.Sample {
		sum += x.Value[valueOf(read.p, "inuse_space")]
	}
	if want := total(b) - total(a); sum != want {
		t.Errorf("the difference has %d bytes, want %d", sum, want)
	}
	text.Reset()
	if err := WriteDiff(&text, a, a, DiffOptions{}); err != nil || strings.Contains(text.String(), "model.py") {
		t.Errorf("a profile differs from itself: %v\n%s", err, text.String())
	}
}

func total(p Profile) (sum int64) {
	for _, x := range p.p.Sample {
		sum += x.Value[valueOf(p.p, "inuse_space")]
	}
	return sum
}
