// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
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

// retriesText returns the counters that show trouble, and much rounding: "; 2 retries after
// cudaMalloc failed and 1 out-of-memory error since the process began".
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

// arenaTexts names allocators with far more in segments than they count as reserved: the rest is
// not PyTorch's cache, though it is shown as that.
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

// CacheKind is why a part of PyTorch's cache is neither in use nor given back.
type CacheKind string

// The kinds of an allocator's cache. Their bytes add up to it.
const (
	CacheIdle    CacheKind = "idle"    // goes back to the driver by empty_cache(), and before an out-of-memory error
	CacheHeld    CacheKind = "held"    // a live tensor keeps its segment from going back
	CacheSmall   CacheKind = "small"   // rests of at most 1 MiB: no request of their arena is that small
	CacheStreams CacheKind = "streams" // only requests on another stream get it
	CachePools   CacheKind = "pools"   // only a CUDA graph or MemPool gets it
	CachePending CacheKind = "pending" // freed, but a stream may still use it
)

// CacheKinds lists all kinds in the order in which reports show them.
var CacheKinds = []CacheKind{CacheIdle, CacheHeld, CacheSmall, CacheStreams, CachePools, CachePending}

// Of returns the bytes of a kind in a cache.
func (k CacheKind) Of(c *caching.Cache) uint64 {
	switch k {
	case CacheIdle:
		return c.Idle
	case CacheHeld:
		return c.Held
	case CacheSmall:
		return c.Small
	case CacheStreams:
		return c.Streams
	case CachePools:
		return c.Private
	case CachePending:
		return c.Pending
	}
	return 0
}

// Text returns what a person can know of a kind, without a full stop.
func (k CacheKind) Text() string {
	switch k {
	case CacheIdle:
		return "goes back to the driver with torch.cuda.empty_cache(), and before PyTorch runs out of memory"
	case CacheHeld:
		return "free next to live tensors, which keep their segments: a request that fits gets it"
	case CacheSmall:
		return "too small: pieces of at most 1 MiB next to large tensors"
	case CacheStreams:
		return "only for other streams"
	case CachePools:
		return "only for CUDA graphs or MemPools, until their pools are destroyed"
	case CachePending:
		return "freed, but a stream may still use it"
	}
	return ""
}

// Label returns what stands behind the bytes of a kind in a list.
func (k CacheKind) Label() string {
	switch k {
	case CacheIdle:
		return "can go back"
	case CacheHeld:
		return "held by live tensors"
	case CacheSmall:
		return "too small"
	case CacheStreams:
		return "other streams"
	case CachePools:
		return "pools"
	case CachePending:
		return "pending"
	}
	return ""
}

// CacheText lists what a cache is made of: "102 MiB held by live tensors, 50.0 MiB other streams";
// "" if it is empty.
func CacheText(c *ledger.AllocatorCache) string {
	var list []string
	for _, k := range CacheKinds {
		if n := k.Of(&c.Cache); n > 0 {
			list = append(list, format.Bytes(n)+" "+k.Label())
		}
	}
	return strings.Join(list, ", ")
}

// StreamNames names the streams of a cache: "default", and the others "stream 1", "stream 2" by
// handle.
func StreamNames(c *caching.Cache) map[uint64]string {
	var handles []uint64
	for i := range c.Arenas {
		handles = append(handles, c.Arenas[i].Stream)
	}
	slices.Sort(handles)
	names := map[uint64]string{}
	n := 0
	for _, h := range slices.Compact(handles) {
		if names[h] = "default"; h != 0 {
			n++
			names[h] = "stream " + strconv.Itoa(n)
		}
	}
	return names
}

// AllocatorTexts returns sentences on what PyTorch's own counters say, without full stops: "since
// the process began: peak 50.1 GiB of tensors and 61.0 GiB reserved, 2 retries, 1 out-of-memory
// error".
func AllocatorTexts(s *ledger.Snapshot, c *ledger.AllocatorCache) (list []string) {
	k := &c.Counters
	text := "Since the process began: peak " + format.Bytes(k.Allocated.Peak) + " of tensors and " + format.Bytes(k.Reserved.Peak) + " reserved"
	if k.Retries > 0 {
		text += ", " + format.Count(k.Retries, "retry") + " after cudaMalloc failed"
	}
	if k.OutOfMemory > 0 {
		text += ", " + format.Count(k.OutOfMemory, "out-of-memory error")
	}
	list = append(list, text)
	if rounding := Minus(c.Allocated, c.Requested); k.Requested != (caching.Stat{}) && rounding > 0 {
		list = append(list, "Rounding takes "+format.Bytes(rounding)+" of the "+format.Bytes(c.Allocated)+" of tensors")
	}
	if c.Repaired > 0 {
		list = append(list, format.Count(c.Repaired, "allocation or free")+" of "+format.Bytes(c.RepairedBytes)+", whose event was lost, follow PyTorch's own blocks")
	}
	if doubt := AllocatorDoubt(s, c); doubt != "" {
		list = append(list, doubt)
	}
	return list
}

// recent is how old a reading may be without a word on its age.
const recent = 2 * time.Second

// AllocatorDoubt returns what the figures of a reading leave open, "" if nothing.
func AllocatorDoubt(s *ledger.Snapshot, c *ledger.AllocatorCache) (text string) {
	if age := Minus(s.End, c.Time); age >= uint64(recent) {
		text = "Read " + format.Span(age) + " before this moment"
	}
	if !c.Exact && !c.Settled {
		if text == "" {
			text = "Read"
		}
		text += " while PyTorch allocated: up to " + format.Bytes(c.OffBytes) + " of tensors may be missing or freed"
	}
	return text
}
