// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// StuckCache is the cache of one of PyTorch's allocators, and which lines of code keep it from the
// driver.
type StuckCache struct {
	fragmentation.Cache
	Cached   uint64 // unused in segments since the attach, and in older ones if the allocator was read
	Older    uint64 // else, unused in segments from before the attach: what holds those is unknown
	Reserved uint64
	Ended    bool // the process has ended: figures are of its end

	kept *Kept
	read *ledger.AllocatorCache // nil: the allocator was not read
}

// StuckCaches returns the allocators whose cache is known, the one with the most stuck first. The
// snapshot must have Stuck.
func StuckCaches(s *ledger.Snapshot, st callstack.Stacks) []StuckCache {
	if len(s.Stuck) == 0 {
		return nil
	}
	kept := KeptBy(s)
	var list []StuckCache
	for _, c := range fragmentation.Caches(s, st) {
		if t := s.TensorsOn(c.Process, c.Device); t != nil {
			x := StuckCache{Cache: c, Cached: t.Cached, Older: t.OlderCached, Reserved: t.Reserved, Ended: s.Processes[c.Process].End != 0, kept: kept[c.Process]}
			if c.Read != 0 {
				x.Cached, x.Older, x.read = c.Stuck.Cached, 0, s.CacheOn(c.Process, c.Device)
			}
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b StuckCache) int { return cmp.Compare(b.Free, a.Free) })
	return list
}

// leastStuck is the least cache that a summary explains.
const leastStuck = 64 << 20

// Matters reports whether so much is stuck that a summary shows it: a twentieth of what is
// reserved.
func (c *StuckCache) Matters() bool { return c.Free >= leastStuck && c.Free >= c.Reserved/20 }

// KeptBy returns who keeps the blocks of a line, as far as that is known, the largest first.
func (c *StuckCache) KeptBy(l *fragmentation.Line) []HeldShare {
	if c.kept == nil {
		return nil
	}
	return slices.DeleteFunc(c.kept.shares(l.Holders, l.Bytes), func(h HeldShare) bool { return h.Line == nil })
}

// StuckText returns "5.20 GiB of 6.40 GiB of cache lie in 262 segments with live tensors, and
// cannot go back to the driver", or what was so at the end of a process.
func (c *StuckCache) StuckText() string {
	lies, lie, cannot := "lies", "lie", "cannot"
	if c.Ended {
		lies, lie, cannot = "lay", "lay", "could not"
	}
	if c.Segments == 0 {
		return fmt.Sprintf("None of %s of cache %s in a segment with live tensors", format.Bytes(c.Cached), lies)
	}
	part := format.Bytes(c.Free) + " of " + format.Bytes(c.Cached) + " of cache " + lie
	if c.Free == c.Cached {
		part = "All " + format.Bytes(c.Cached) + " of cache " + lie
	}
	return part + " in " + format.Count(c.Segments, "segment") + " with live tensors, and " + cannot + " go back to the driver"
}

// OthersText returns "216 MiB of the cache serve only other streams, 12.0 MiB only CUDA graphs or
// MemPools", "" if nothing does or the allocator was not read.
func (c *StuckCache) OthersText() string {
	switch {
	case c.read == nil || c.read.Streams+c.read.Private == 0:
		return ""
	case c.read.Streams == 0:
		return format.Bytes(c.read.Private) + " of the cache serve only CUDA graphs or MemPools"
	case c.read.Private == 0:
		return format.Bytes(c.read.Streams) + " of the cache serve only other streams"
	}
	return format.Bytes(c.read.Streams) + " of the cache serve only other streams, " + format.Bytes(c.read.Private) + " only CUDA graphs or MemPools"
}

// StuckTexts returns a sentence on each cache of which much is stuck: "python3 [42] on cuda:0: 5.20
// GiB of 6.40 GiB of cache lie in 262 segments with live tensors, and cannot go back to the driver:
// 64.0 MiB in 12 tensors hold 5.16 GiB in 261 segments, from metrics.py:31 Metrics.update".
func StuckTexts(s *ledger.Snapshot, st callstack.Stacks) (list []string) {
	for _, c := range StuckCaches(s, st) {
		if !c.Matters() || c.Ended {
			continue
		}
		text := format.Process(&s.Processes[c.Process]) + " on " + format.Device(c.Device, ledger.Tensor) + ": " + c.StuckText()
		if len(c.Rows) > 0 {
			text += ": " + c.Rows[0].HoldText() + ", from " + c.Rows[0].LinesText()
		}
		if others := c.OthersText(); others != "" {
			text += "; " + others
		}
		list = append(list, text)
	}
	return list
}

// IdleText returns what torch.cuda.empty_cache() gives back. A process that has ended gave back
// all.
func (c *StuckCache) IdleText() string {
	if c.Ended {
		return "its end gave all of it back"
	}
	if c.Idle == 0 {
		return "torch.cuda.empty_cache() gives nothing back now"
	}
	return "torch.cuda.empty_cache() gives back at most " + format.Bytes(c.Idle) + " now"
}

// Doubts returns what the figures leave open, without a full stop.
func (c *StuckCache) Doubts(s *ledger.Snapshot) (list []string) {
	if c.Older > 0 {
		list = append(list, format.Bytes(c.Older)+" of cache lie in segments from before the attach: what holds those is unknown")
	}
	if age := Minus(s.End, c.Read); c.Read != 0 {
		if age >= uint64(recent) {
			list = append(list, "PyTorch's allocator was read "+format.Span(age)+" before this moment")
		}
		return list
	}
	switch age := Minus(s.End, c.Listed); {
	case s.Sampling.Mean == 0: // all are in the sample
	case c.Listed == 0:
		list = append(list, "tensors that were not sampled were not listed before this moment: they may hold more")
	case c.Unsampled+c.Unlisted+c.Outdated > 0 && age >= uint64(2*time.Second):
		list = append(list, fmt.Sprintf("tensors that were not sampled are from %s before", format.Span(age)))
	}
	if n := max(c.Unlisted, c.Outdated); n > max(c.Cached/100, 1<<20) {
		list = append(list, fmt.Sprintf("%s of tensors were allocated or freed since, or are not listed, so segments can be missing here or free by now", format.Bytes(n)))
	}
	return list
}
