// SPDX-License-Identifier: Apache-2.0

package modelpart

import (
	"math"
	"slices"
	"testing"
)

func TestTheFirstKindCounts(t *testing.T) {
	if got := (Of(Saved) | Of(Weight) | Of(Gradient)).First(); got != Weight {
		t.Error(got)
	}
	if got := (Of(None) | Of(200)).First(); got != None {
		t.Error(got)
	}
	if got := (Of(Saved) | Of(Buffer)).First(); got != Buffer {
		t.Error(got)
	}
}

func TestAListOfACaptureCannotOverflow(t *testing.T) {
	b := Read([]uint64{1, math.MaxUint64, math.MaxUint64, 5, 6, 7, 8, 9, 10, 11})
	if b[None] != 1 || b[Weight] != mostBytes-1 || b.Sum() != mostBytes {
		t.Error(b)
	}
	if b := Read(nil); b.Sum() != 0 {
		t.Error(b)
	}
}

func TestKindsHaveNames(t *testing.T) {
	if slices.Contains(names[1:], "") || Kind(99).String() != "" || Saved.String() != "saved" {
		t.Error(names)
	}
}
