// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestThePeakThatIsShownIsNotBelowWhatWasHeld: one sum stands in both lines, with what has its peak
// then.
func TestThePeakThatIsShownIsNotBelowWhatWasHeld(t *testing.T) {
	s := reporttest.Ended()
	for i, of := range []string{"its tensors", "its allocations"} {
		x := &s.Peaks[i]
		text, held := report.EndedText(s, x), report.HeldText(x)
		sum, _, _ := strings.Cut(held, " = ")
		if !strings.Contains(text, ": it held "+sum+" at ") || !strings.HasSuffix(text, ", the peak of "+of) {
			t.Errorf("%q stands above %q", text, held)
		}
		if books := report.Holdings(x.Books); len(books) == 0 || format.Bytes(x.Bytes) == sum {
			t.Errorf("the peak alone is %s, and what was held %s: the case tests nothing", format.Bytes(x.Bytes), sum)
		}
	}
}

// TestACommandHeldItsContextAtItsPeak: a process that began within the session had nothing before
// the attach.
func TestACommandHeldItsContextAtItsPeak(t *testing.T) {
	for i := range reporttest.Ended().Peaks {
		s := reporttest.Ended()
		x := &s.Peaks[i]
		if held := report.HeldText(x); !strings.HasSuffix(held, " + before attach 310 MiB") {
			t.Errorf("older than the session: %q", held)
		}
		x.Books.Processes[0].Begin = x.Books.Begin + 1
		if held := report.HeldText(x); !strings.HasSuffix(held, " + CUDA context 310 MiB") {
			t.Errorf("begun within the session: %q", held)
		}
	}
}

// TestAPeakOnOneOfSeveralGPUsSaysSo: what was held is on all of them.
func TestAPeakOnOneOfSeveralGPUsSaysSo(t *testing.T) {
	for _, c := range []struct {
		kind  ledger.Kind
		space ledger.Space
		want  string
	}{
		{ledger.Tensor, ledger.Blocks, "it held 96.0 MiB at 3.0s, the peak of its tensors on one GPU"},
		{ledger.Device, ledger.Addresses, "it held 96.0 MiB at 3.0s, the peak of its allocations on one GPU"},
	} {
		l := ledger.New(ledger.Options{})
		for i := range uint64(2) {
			e := ledger.Event{Op: ledger.Alloc, Kind: c.kind, Space: c.space, PID: 7, TID: 7, Device: int32(i), Time: (2 + i) * reporttest.Second, Address: (1 + i) << 32, Size: (32 + 32*i) << 20, Stack: 1, API: "f"}
			if c.kind == ledger.Tensor {
				e.Told, e.Allocated, e.Live, e.Reserved = ledger.ToldAllocated|ledger.ToldLive, e.Size, e.Size, e.Size
			}
			l.Apply(&e)
		}
		l.Apply(&ledger.Event{Op: ledger.Exit, PID: 7, Time: 9 * reporttest.Second})
		s := l.Snapshot(10*reporttest.Second, time.Time{})
		l.AddPeaks(s)
		if len(s.Peaks) != 1 {
			t.Fatalf("%d peaks", len(s.Peaks))
		}
		if got := report.EndedText(s, &s.Peaks[0]); !strings.HasSuffix(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
