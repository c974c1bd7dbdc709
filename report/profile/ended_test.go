// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/reporttest"
)

// TestTheProfileHasThePeakOfWhatHasEnded, to the byte what the summary says that it held, and what
// was allocated once.
func TestTheProfileHasThePeakOfWhatHasEnded(t *testing.T) {
	s := reporttest.Ended()
	p := newProfile(s, reporttest.Stacks())
	inUse, allocated := map[int64]int64{}, map[int64]int64{}
	for _, x := range p.Sample {
		inUse[x.NumLabel["pid"][0]] += x.Value[7]
		allocated[x.NumLabel["pid"][0]] += x.Value[0]
	}
	if len(s.Peaks) != 2 {
		t.Fatalf("%d peaks", len(s.Peaks))
	}
	for i, want := range []struct {
		bytes, allocs int64
		held          string
	}{
		{(310 + 12*64) << 20, 24, "1.05 GiB = tensors 576 MiB + PyTorch cache 192 MiB + before attach 310 MiB"},
		{(310 + 12*10) << 20, 12, "430 MiB = other CUDA 120 MiB + before attach 310 MiB"},
	} {
		x := &s.Peaks[i]
		pid := int64(s.Processes[x.Process].PID)
		if inUse[pid] != want.bytes || allocated[pid] != want.allocs || report.HeldText(x) != want.held {
			t.Errorf("%d: %d bytes at the peak, %d allocations, %q, want %+v", pid, inUse[pid], allocated[pid], report.HeldText(x), want)
		}
		if got := format.Bytes(uint64(inUse[pid])); !strings.HasPrefix(want.held, got+" ") {
			t.Errorf("%d: %s in use, the summary has %q", pid, got, want.held)
		}
		if text := report.EndedText(s, x); !slices.ContainsFunc(p.Comments, func(c string) bool {
			return strings.HasPrefix(c, text+", as peak_space shows (-sample_index=peak_space): "+want.held)
		}) {
			t.Errorf("no comment says %q: %q", text, p.Comments)
		}
	}
}

// TestTheOnlyProcessThatHasEndedIsShownAtItsPeak, as in the summary and on the page; the peaks of
// several are of different moments, which a comment says.
func TestTheOnlyProcessThatHasEndedIsShownAtItsPeak(t *testing.T) {
	moments := "peak_space has peaks of different moments: their sum can exceed what a GPU has"
	several := newProfile(reporttest.Ended(), reporttest.Stacks())
	if several.DefaultSampleType != "inuse_space" || !slices.Contains(several.Comments, moments) {
		t.Errorf("of several: %s, %q", several.DefaultSampleType, several.Comments)
	}
	s := reporttest.Ended()
	s.Peaks = s.Peaks[:1]
	for i := range s.Processes { // the others had no memory
		if i != s.Peaks[0].Process {
			s.Processes[i].Totals = nil
		}
	}
	one := newProfile(s, reporttest.Stacks())
	if one.DefaultSampleType != "peak_space" || slices.Contains(one.Comments, moments) {
		t.Errorf("of one: %s, %q", one.DefaultSampleType, one.Comments)
	}
	if running := newProfile(reporttest.Snapshot(), reporttest.Stacks()); running.DefaultSampleType != "inuse_space" {
		t.Errorf("of processes that run: %s", running.DefaultSampleType)
	}
}
