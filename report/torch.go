// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TorchTexts returns a sentence on each process and device: "python3 [42] on cuda:0: peak 50.1 GiB
// of tensors at 1m20s; largest free run: 1.20 GiB".
func TorchTexts(s *ledger.Snapshot) []string {
	var list []string
	for i := range s.Tensors {
		t := &s.Tensors[i]
		text := format.Process(&s.Processes[t.Process]) + " on " + format.Device(t.Device, ledger.Tensor) + ": peak " +
			format.Bytes(t.Peak) + " of tensors at " + format.Span(Minus(t.PeakTime, s.Begin))
		if n := t.Asleep + t.OlderAsleep; n > 0 {
			when := " of tensors are asleep now"
			if s.Processes[t.Process].End != 0 {
				when = " of tensors were asleep at its end"
			}
			text += "; " + format.Bytes(n) + when
			if cache := Minus(Minus(t.Reserved, t.Allocated), t.Cached+t.OlderCached); cache > 0 {
				text += ", and " + format.Bytes(cache) + " of cache, without memory"
			}
		}
		if t.LargestFree > 0 {
			text += "; largest free run: " + format.Bytes(t.LargestFree)
		}
		if t.OlderCached > 0 && s.CacheOn(t.Process, t.Device) == nil { // its free runs are unknown
			text += "; " + format.Bytes(t.OlderCached) + " of the cache existed before the attach and may have a larger one"
		}
		if c := s.CacheOn(t.Process, t.Device); c != nil {
			text += retriesText(c)
		}
		list = append(list, text)
	}
	return list
}

// leastRounding is which part of the tensors' bytes rounding must take to be worth a word.
const leastRounding = 20

// retriesText returns the counters that show trouble, and much rounding: "; 2 retries after cudaMalloc failed and 1
// out-of-memory error since the process began".
func retriesText(c *ledger.AllocatorCache) (text string) {
	switch k := &c.Counters; {
	case k.OutOfMemory > 0 && k.Retries > 0:
		text = "; " + format.Count(k.Retries, "retry") + " after cudaMalloc failed and " + format.Count(k.OutOfMemory, "out-of-memory error") + " since the process began"
	case k.OutOfMemory > 0:
		text = "; " + format.Count(k.OutOfMemory, "out-of-memory error") + " since the process began"
	case k.Retries > 0:
		text = "; " + format.Count(k.Retries, "retry") + " after cudaMalloc failed since the process began"
	}
	if rounding := Minus(c.Allocated, c.Requested); rounding*leastRounding > c.Allocated {
		text += "; rounding takes " + format.Bytes(rounding) + " of the tensors"
	}
	return text
}

// leastArena is how much more in segments than PyTorch reserved is no delay of its reports.
const leastArena = 256 << 20

// arenaTexts names allocators with far more in segments than they count as reserved: the rest is not
// PyTorch's cache, though it is shown as that.
func arenaTexts(s *ledger.Snapshot) (list []string) {
	for i := range s.Tensors {
		t := &s.Tensors[i]
		if more := Minus(t.Segments, t.Reserved); t.Reserved > 0 && more >= max(leastArena, t.Reserved/8) {
			list = append(list, fmt.Sprintf("%s on %s: the cache includes %s that PyTorch has not reserved, as where a MemPool takes its segments from the arena of another allocator",
				format.Process(&s.Processes[t.Process]), format.Device(t.Device, ledger.Tensor), format.Bytes(more)))
		}
	}
	return list
}

// CacheSites returns the sites whose segments hold more than their blocks, largest cache first, and
// the sum.
func CacheSites(s *ledger.Snapshot) (list []*ledger.Site, sum uint64) {
	reports := ReportTensors(s)
	for i := range s.Sites {
		if x := &s.Sites[i]; planeOf(x, reports) == PlaneCache && CacheBytes(x) > 0 {
			list = append(list, x)
			sum += CacheBytes(x)
		}
	}
	slices.SortStableFunc(list, func(a, b *ledger.Site) int { return cmp.Compare(CacheBytes(b), CacheBytes(a)) })
	return list, sum
}

// maxTorchSites is how many sites of a process are searched for PyTorch's allocator.
const maxTorchSites = 20

// SegmentsOnly returns why the tensors of a process are unknown although PyTorch's allocator has
// live memory, "" if they are known or it has none.
func SegmentsOnly(s *ledger.Snapshot, st callstack.Stacks, process int) string {
	if ReportTensors(s)[process] {
		return ""
	}
	looked, why := 0, ""
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Process != process || x.LiveObjects == 0 || !x.Kind.Owned() {
			continue
		}
		if looked++; looked > maxTorchSites || why != "" {
			break
		}
		switch list := frames.Visible(st, x.Stack, x.API); {
		case slices.ContainsFunc(list, isPluggable):
			why = "its pluggable allocator reports none"
		case !x.Segment && !slices.ContainsFunc(list, isTorchCUDA):
		case x.Kind == ledger.Async:
			why = "PyTorch's backend cudaMallocAsync reports none"
		default:
			why = "none were reported, or they were not traced"
		}
	}
	return why
}

func isTorchCUDA(f callstack.Frame) bool {
	return !f.Python && f.Mapping != nil && callstack.IsTorchAllocator(f.Mapping.Path)
}

func isPluggable(f callstack.Frame) bool {
	return !f.Python && strings.Contains(f.Function, "CUDAPluggableAllocator")
}
