// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
)

func TestTheTreeAddsUpToTheGPUMemoryOfTheProfile(t *testing.T) {
	s, st := reporttest.TorchSnapshot(), reporttest.TorchStacks()
	var want int64
	for _, h := range Holdings(s) {
		if !h.Apart() {
			want += h.Live
		}
	}
	root := CallTree(s, st, Options{})
	var leaves func(b *Branch) int64
	leaves = func(b *Branch) int64 {
		sum, own := int64(0), b.Bytes
		for _, c := range b.Children {
			sum += leaves(c)
			own -= c.Bytes
		}
		return sum + own
	}
	if want == 0 || root.Bytes != want || leaves(root) != want {
		t.Errorf("the tree has %d, its branches %d, the profile %d", root.Bytes, leaves(root), want)
	}
}
