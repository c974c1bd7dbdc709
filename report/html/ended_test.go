// SPDX-License-Identifier: Apache-2.0

package html

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestThePageOfAnEndedProcessSaysItsPeak, as the summary and the profile do.
func TestThePageOfAnEndedProcessSaysItsPeak(t *testing.T) {
	in := ended(1)
	s := in.Snapshot
	s.Processes[0].Totals, s.Processes[2].Totals, s.Tensors = nil, nil, nil
	s.Processes[1].End = begin + 60*second
	in.Timeline.Marks = nil
	books := *s
	books.Processes, books.Balances, books.Tensors = s.Processes[1:2], nil, nil
	books.Sites = []ledger.Site{{Kind: ledger.Device, LiveBytes: gib}}
	s.Peaks = []ledger.Peak{{Process: 1, Bytes: gib, Time: begin + 20*second, Books: &books}}
	got := newPayload(&in).Opening
	if want := " ended at 1m00s: it held 1.00 GiB at 20s, the peak of its allocations: 1.00 GiB = other CUDA 1.00 GiB"; got == nil || got.What != "the peak" || len(got.Text) < len(want) || got.Text[len(got.Text)-len(want):] != want {
		t.Errorf("the page opens with %+v, want %q", got, want)
	}
}
