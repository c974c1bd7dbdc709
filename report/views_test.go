// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"io"
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
	root := callTree(s, st, false)
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
