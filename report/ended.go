// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// EndedText returns "python3 [42] ended at 12m3s: its peak was 41.2 GiB at 11m58s".
func EndedText(s *ledger.Snapshot, x *ledger.Peak) string {
	p := &s.Processes[x.Process]
	return format.Process(p) + " " + howEnded(p) + " at " + format.Span(Minus(p.End, s.Begin)) +
		": its peak was " + format.Bytes(x.Bytes) + " at " + format.Span(Minus(x.Time, s.Begin))
}

// howEnded returns how a process ended that has: the process of a program that calls execve goes on
// as another.
func howEnded(p *ledger.Process) string {
	if p.Replaced {
		return "executed another program"
	}
	return "ended"
}

// HeldText returns what a process held on GPUs at its peak, by plane: "3.10 GiB = tensors 2.00 GiB +
// PyTorch cache 1.00 GiB + context, other before attach 100 MiB".
func HeldText(x *ledger.Peak) string {
	var sum int64
	by := map[string]int64{}
	for _, h := range Holdings(x.Books) {
		if !h.Apart() {
			sum += h.Live
			by[h.Plane] += h.Live
		}
	}
	var b strings.Builder
	b.WriteString(format.SignedBytes(sum))
	sign := " = "
	for _, plane := range PlanesOnGPUs {
		n := by[plane]
		if n == 0 {
			continue
		}
		if n < 0 {
			sign = " - "
		}
		b.WriteString(sign + PlaneName(plane) + " " + format.Bytes(uint64(max(n, -n))))
		sign = " + "
	}
	return b.String()
}

// SitesAsOfText returns "sites as of 3.2s, when it had 98 % of the peak" if a process reached its
// peak with a block that is not in the sample, and some time after the latest one that is; else "".
func SitesAsOfText(s *ledger.Snapshot, x *ledger.Peak) string {
	const near = 10e6 // ns
	if x.SitesBytes >= x.Bytes || x.SitesTime+near > x.Time && x.Time+near > x.SitesTime {
		return ""
	}
	percent := format.Count(x.SitesBytes*100/max(x.Bytes, 1), "%")
	percent = strings.TrimSuffix(percent, "s")
	return "sites as of " + format.Span(Minus(x.SitesTime, s.Begin)) + ", when it had " + percent + " of the peak"
}

// RanOutText returns "It ran out of memory on cuda:0 at 5.9s: PyTorch's allocator wanted 16.0 MiB", or
// "".
func RanOutText(s *ledger.Snapshot, x *ledger.Peak) string {
	if x.OOM == nil {
		return ""
	}
	o := OOM{API: x.OOM.API, Kind: x.OOM.Kind, Device: x.OOM.Device, Size: x.OOM.Bytes}
	text := "It ran out of " + o.memory() + " at " + format.Span(Minus(x.OOM.Time, s.Begin))
	if x.OOM.Count > 1 {
		text += " for the last of " + format.Count(x.OOM.Count, "time")
	}
	return text + ": " + o.Caller() + " wanted " + o.SizeText()
}

// AllEnded reports whether each process with a peak has ended, and there is one.
func AllEnded(s *ledger.Snapshot) bool {
	for i := range s.Processes {
		if p := &s.Processes[i]; p.End == 0 && len(p.Totals) > 0 {
			return false
		}
	}
	return len(s.Peaks) > 0
}

// HighestPeaks returns the peaks of processes that have ended, the highest first.
func HighestPeaks(s *ledger.Snapshot) []*ledger.Peak {
	var list []*ledger.Peak
	for i := range s.Peaks {
		list = append(list, &s.Peaks[i])
	}
	slices.SortStableFunc(list, func(a, b *ledger.Peak) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return list
}
