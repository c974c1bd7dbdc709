// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// PeakTime returns the time at which one process had the most memory on one GPU: its tensors, where
// its PyTorch reports them, because segments follow late or never shrink. ok is false if no process
// held GPU memory.
func PeakTime(s *ledger.Snapshot) (at uint64, ok bool) { return PeakTimeOf(s, -1) }

// UsagePeak returns the most that a process is known to have used on the GPU of a part: NVML's
// readings, and what it had at its own peaks, most of which lie between two readings.
func UsagePeak(s *ledger.Snapshot, x *ledger.Part) uint64 {
	most := PartUsage(x)
	for i := range s.Balances {
		if b := &s.Balances[i]; b.Process == x.Process && b.UUID == x.UUID {
			most = max(most, b.Peak)
		}
	}
	if peak := s.PeakOf(x.Process); peak != nil {
		return max(most, heldOn(peak.Books, x.UUID))
	}
	own := allocatedPeak(s, x.Process, x.Device)
	if t := s.TensorsOn(x.Process, x.Device); t != nil && t.Asleep+t.OlderAsleep == 0 {
		own = max(own, t.Peak)
	}
	if own > 0 {
		own += x.Foreign
	}
	return max(most, own)
}

// allocatedPeak returns the most that a process allocated and had on a device at one moment. Where
// it has several GPUs, that is known of each kind only.
func allocatedPeak(s *ledger.Snapshot, process int, device int32) (most uint64) {
	p, only := &s.Processes[process], true
	for i := range p.Totals {
		switch t := &p.Totals[i]; {
		case !t.Kind.Owned():
		case t.Device == device:
			most = max(most, t.PeakBytes)
		default:
			only = false
		}
	}
	if only && most > 0 && !ReportTensors(s)[process] {
		most = max(most, p.PeakBytes)
	}
	return most
}

// heldOn returns what a snapshot of one process has on a GPU.
func heldOn(s *ledger.Snapshot, uuid string) uint64 {
	var sum int64
	for _, h := range Holdings(s) {
		if !h.Apart() && h.UUID == uuid {
			sum += h.Live
		}
	}
	return uint64(max(sum, 0))
}

// PeakTimeOf is PeakTime of one process, or of all for -1.
func PeakTimeOf(s *ledger.Snapshot, process int) (at uint64, ok bool) {
	var most uint64
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PeakBytes > most && (process < 0 || i == process) {
			most, at = p.PeakBytes, p.PeakTime
		}
	}
	return at, most > 0
}

// EndedText returns "python3 [42] ended at 12m3s: it held 41.2 GiB at 11m58s, the peak of its
// tensors". The bytes are the sum of HeldText: what it held on all GPUs when it had most of what
// its peak is of.
func EndedText(s *ledger.Snapshot, x *ledger.Peak) string {
	p := &s.Processes[x.Process]
	sum, _ := heldAt(x)
	return format.Process(p) + " " + howEnded(p) + " at " + format.Span(Minus(p.End, s.Begin)) +
		": it held " + format.SignedBytes(sum) + " at " + format.Span(Minus(x.Time, s.Begin)) + ", the peak of " + peakOf(x)
}

// peakOf returns what a peak is of: "its tensors", "its allocations on one GPU".
func peakOf(x *ledger.Peak) string {
	text := "its allocations"
	if x.Tensors {
		text = "its tensors"
	}
	if x.OneGPU {
		text += " on one GPU"
	}
	return text
}

// heldAt returns what a process held on GPUs at its peak, and by plane.
func heldAt(x *ledger.Peak) (sum int64, by map[string]int64) {
	by = map[string]int64{}
	for _, h := range Holdings(x.Books) {
		if !h.Apart() {
			sum += h.Live
			by[h.Plane] += h.Live
		}
	}
	return sum, by
}

// howEnded returns how a process ended that has: the process of a program that calls execve goes on
// as another.
func howEnded(p *ledger.Process) string {
	if p.Replaced {
		return "executed another program"
	}
	return "ended"
}

// HeldText returns what a process held on GPUs at its peak, by plane: "3.10 GiB = tensors 2.00 GiB
// + PyTorch cache 1.00 GiB + before attach 100 MiB". A process that began within the session has
// its CUDA context in place of memory before the attach.
func HeldText(x *ledger.Peak) string {
	sum, by := heldAt(x)
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
		name := PlaneName(plane)
		if list := x.Books.Processes; plane == PlaneBefore && len(list) > 0 && list[0].Begin > x.Books.Begin {
			name = contextName
		}
		b.WriteString(sign + name + " " + format.Bytes(uint64(max(n, -n))))
		sign = " + "
	}
	return b.String()
}

// SitesAsOfText returns "sites at 3.2s, when it had 98 % of the peak" if a process reached its
// peak with a block that is not in the sample, and some time after the latest one that is; else "".
func SitesAsOfText(s *ledger.Snapshot, x *ledger.Peak) string {
	const near = 10e6 // ns
	if x.SitesBytes >= x.Bytes || x.SitesTime+near > x.Time && x.Time+near > x.SitesTime {
		return ""
	}
	return fmt.Sprintf("sites at %s, when it had %d%% of the peak", format.Span(Minus(x.SitesTime, s.Begin)), x.SitesBytes*100/max(x.Bytes, 1))
}

// RanOutText returns "It ran out of memory on cuda:0 at 5.9s: PyTorch's allocator wanted 16.0 MiB",
// or "".
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

// Rank is what a process of a job that has ended held at its peak, in bytes.
type Rank struct {
	*ledger.Peak
	Process *ledger.Process
	Tensors int64 // at the peak
	Cache   int64 // idle: reserved by PyTorch, and in no tensor
	Other   int64 // the rest of its GPU memory
}

// Ranks returns the processes of a job that have ended, by rank; those without one come last.
func Ranks(s *ledger.Snapshot) []Rank {
	var list []Rank
	for i := range s.Peaks {
		x := Rank{Peak: &s.Peaks[i], Process: &s.Processes[s.Peaks[i].Process]}
		for _, h := range Holdings(x.Books) {
			switch {
			case h.Apart():
			case h.Plane == PlaneTensor:
				x.Tensors += h.Live
			case h.Plane == PlaneCache:
				x.Cache += h.Live
			default:
				x.Other += h.Live
			}
		}
		list = append(list, x)
	}
	slices.SortStableFunc(list, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.order(), b.order()), cmp.Compare(a.Process.PID, b.Process.PID))
	})
	return list
}

func (x *Rank) order() uint64 {
	n, err := strconv.ParseUint(x.Process.Rank, 10, 32)
	if err != nil {
		return 1 << 32
	}
	return n
}

// Name returns "rank 3 of 8", or "" without a rank.
func (x *Rank) Name() string {
	text := WorkloadText(ledger.Workload{Rank: x.Process.Rank, LocalRank: x.Process.LocalRank, WorldSize: x.Process.WorldSize})
	return strings.Join(text, "")
}
