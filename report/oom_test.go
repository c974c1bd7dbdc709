// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestOOMText(t *testing.T) {
	for want, o := range map[string]OOM{
		"ran out of memory on cuda:1 (wanted 2.00 GiB)":               {Device: 1, Size: 2 * reporttest.GiB},
		"ran out of memory on a GPU (wanted an unknown size)":         {Device: ledger.UnknownDevice, Size: ledger.UnknownSize},
		"ran out of host memory that can be pinned (wanted 2.00 GiB)": {Kind: ledger.Pinned, Size: 2 * reporttest.GiB},
	} {
		if got := o.Text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestACallOfTheAllocatorHasItsName: "torch" is a word of the ledger alone.
func TestACallOfTheAllocatorHasItsName(t *testing.T) {
	for api, want := range map[string]string{"torch": "PyTorch's allocator", "cudaMalloc": "cudaMalloc", "a\x1b[1m": "a[1m"} {
		if got := CallText(api); got != want {
			t.Errorf("%q: %q, want %q", api, got, want)
		}
	}
}
