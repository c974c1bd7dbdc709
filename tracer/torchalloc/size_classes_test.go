// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"testing"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// The ledger imports nothing, so it has the size classes of bpf/size_classes.h once more.
func TestKernelHalfAndLedgerHaveTheSameSizeClasses(t *testing.T) {
	if ledger.SizeClasses != bpf.SizeClasses {
		t.Fatalf("the ledger has %d size classes, the kernel half %d", ledger.SizeClasses, bpf.SizeClasses)
	}
	for class := 1; class < bpf.SizeClasses; class++ {
		bound := uint64(classBound(class))
		if below, at := ledger.SizeClass(bound-1), ledger.SizeClass(bound); below != class-1 || at != class {
			t.Errorf("blocks of %d and %d bytes are in classes %d and %d, want %d and %d", bound-1, bound, below, at, class-1, class)
		}
	}
}
