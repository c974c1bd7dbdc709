// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

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

// PoolName names the pool of an arena: "default", "CUDA graph 3", "MemPool 2".
func PoolName(id caching.PoolID) string {
	switch {
	case !id.Private():
		return "default"
	case id[1] == 0:
		return "CUDA graph " + strconv.FormatUint(id[0], 10)
	case id[0] == 0:
		return "MemPool " + strconv.FormatUint(id[1], 10)
	}
	return fmt.Sprintf("pool %d.%d", id[0], id[1])
}

// StreamNames names the streams of a cache: "default", and the others "stream 1", "stream 2" by handle.
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

// AllocatorTexts returns sentences on what PyTorch's own counters say, without full stops: "since the process
// began: peak 50.1 GiB of tensors and 61.0 GiB reserved, 2 retries, 1 out-of-memory error".
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
	if !c.Exact {
		if text == "" {
			text = "Read"
		}
		text += " while PyTorch allocated: up to " + format.Bytes(c.OffBytes) + " of tensors may be missing or freed"
	}
	return text
}
