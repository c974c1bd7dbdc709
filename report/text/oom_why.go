// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// PyTorch's allocator takes a segment from the driver for a request that no free block serves: 2
// MiB for small ones, 20 MiB below 10 MiB, else a multiple of 2 MiB
// (c10/cuda/CUDACachingAllocator.cpp).
const (
	smallRequest, smallSegment = 1 << 20, 2 << 20
	midRequest, midSegment     = 10 << 20, 20 << 20
	segmentStep                = 2 << 20
)

// need returns how much the request takes from the driver.
func (v *oomCase) need() uint64 {
	switch size := v.o.Size; {
	case !v.o.FromTorch() || size > math.MaxUint64-segmentStep:
		return size
	case size <= smallRequest:
		return smallSegment
	case size < midRequest:
		return midSegment
	default:
		return (size + segmentStep - 1) / segmentStep * segmentStep
	}
}

// fitsInOnePiece reports whether the request would have fit if the cache were in one piece, beside
// the GPU's free memory: enough for the request itself, and for the segment that it takes.
func (v *oomCase) fitsInOnePiece() bool {
	room := v.cached()
	if v.gpu != nil {
		room += min(v.free(), math.MaxUint64-room)
	}
	return v.cached() >= v.o.Size && room >= v.need()
}

// why returns one sentence on why the request failed, as far as the figures show it: what alone
// would have let it fit.
func (v *oomCase) why() string {
	o := v.o
	known := o.Size != ledger.UnknownSize
	switch {
	case o.Kind.OnHost():
		return fmt.Sprintf("The driver could not pin %s more on the host: neither GPU memory nor PyTorch's cache is involved.", o.SizeText())
	case v.gpu != nil && known && o.Size > v.gpu.Total:
		return fmt.Sprintf("The request is larger than the whole GPU, which has %s.", format.Bytes(v.gpu.Total))
	case o.FromTorch() && known && v.fitsInOnePiece():
		return v.fragmentation()
	case v.gpu == nil:
		return "It is unknown how full the GPU was: NVML gave no reading of it."
	case known && v.free() >= v.need() && v.left:
		return fmt.Sprintf("%s should have been free: a limit of the process (PyTorch's memory fraction, MPS), or memory that was given back since.", format.Bytes(v.free()))
	case known && v.free() >= v.need():
		return fmt.Sprintf("%s are free now: memory was given back since the error, or a limit of the process is below the GPU's (PyTorch's memory fraction, MPS).", format.Bytes(v.free()))
	case known && v.free()+v.others() >= v.need() && v.others() >= v.own:
		return v.blameOthers()
	case known && v.need() > o.Size && max(v.free(), v.cached()) >= o.Size:
		return fmt.Sprintf("%s PyTorch takes %s from the driver for the request: more than the %s that are free and the %s that are cached.",
			v.full(), format.Bytes(v.need()), format.Bytes(v.free()), format.Bytes(v.cached()))
	}
	return v.full()
}

// fragmentation returns the sentence for a cache that was large enough, but not in one piece. The
// books may be slightly younger than the error, and do not know free runs in segments allocated
// before the attach.
func (v *oomCase) fragmentation() string {
	cached := format.Bytes(v.cached()) + " are cached"
	if c := v.cache(); c != nil && c.LargestFree < v.o.Size {
		return fmt.Sprintf("%s, but the largest free run is %s: %s.", cached, format.Bytes(c.LargestFree), kindsText(c))
	}
	switch t := v.tensors; {
	case t == nil || t.LargestFree == 0:
		return cached + ", but in no free run that is large enough: fragmentation."
	case t.LargestFree >= v.o.Size:
		return fmt.Sprintf("%s, with a free run of %s by now that the request could not take: another stream or pool has it, or it was freed since.", cached, format.Bytes(t.LargestFree))
	case t.OlderCached > 0:
		return fmt.Sprintf("%s, but the largest free run is %s in segments allocated since the attach: fragmentation.", cached, format.Bytes(t.LargestFree))
	}
	return fmt.Sprintf("%s, but the largest free run is %s: fragmentation.", cached, format.Bytes(v.tensors.LargestFree))
}

// cache returns what was read of the allocator that failed, soon before or after the error; nil:
// nothing.
func (v *oomCase) cache() *ledger.AllocatorCache {
	if !v.o.FromTorch() || v.process < 0 {
		return nil
	}
	c := v.s.CacheOn(v.process, v.o.Device)
	if c == nil || max(c.Time, v.s.End)-min(c.Time, v.s.End) > uint64(soon) {
		return nil
	}
	return c
}

// soon is how far a reading of an allocator may be from an error that it explains.
const soon = 10 * time.Second

// kindsText returns "5.20 GiB next to live tensors, 400 MiB only for other streams".
func kindsText(c *ledger.AllocatorCache) string {
	var list []string
	for _, k := range [...]struct {
		bytes uint64
		text  string
	}{
		{c.Held, "next to live tensors"}, {c.Streams, "only for other streams"}, {c.Private, "only for CUDA graphs or MemPools"},
		{c.Pending, "still used by a stream"}, {c.Small, "in pieces of at most 1 MiB"}, {c.Idle, "in segments without a tensor"},
	} {
		if k.bytes > 0 {
			list = append(list, format.Bytes(k.bytes)+" "+k.text)
		}
	}
	return strings.Join(list, ", ")
}

// stuck returns what keeps the cache of the allocator that failed from the driver, nil if little of
// it is stuck.
func (v *oomCase) stuck(st callstack.Stacks) *report.StuckCache {
	if !v.o.FromTorch() || v.process < 0 {
		return nil
	}
	list := report.StuckCaches(v.s, st)
	for i := range list {
		if c := &list[i]; c.Process == v.process && c.Device == v.o.Device && c.Matters() {
			return c
		}
	}
	return nil
}

// stuckText returns "5.21 GiB of the cache cannot go back to the driver: 480 MiB in 240 tensors
// hold 4.69 GiB in 240 segments, from metrics.py:31 Metrics.update." of the first lines that hold
// it, "" if little of it is stuck.
func (v *oomCase) stuckText(st callstack.Stacks) string {
	c := v.stuck(st)
	if c == nil || len(c.Rows) == 0 {
		return ""
	}
	first := &c.Rows[0]
	text := fmt.Sprintf("%s of the cache cannot go back to the driver: %s, from %s.", format.Bytes(c.Free), first.HoldText(), first.LinesText())
	if v.gpu != nil && v.free() < v.need() && v.need()-v.free() <= first.Bytes {
		text += " Without them the request would fit."
	}
	return text
}

func (v *oomCase) blameOthers() string {
	if len(v.users) == 1 {
		return fmt.Sprintf("Another process on this GPU, %s, holds %s of %s: without it the request would fit.",
			v.userName(&v.users[0], report.MaxName), format.Bytes(v.others()), format.Bytes(v.gpu.Total))
	}
	return fmt.Sprintf("The %d other processes on this GPU hold %s of %s: without them the request would fit.",
		len(v.users), format.Bytes(v.others()), format.Bytes(v.gpu.Total))
}

func (v *oomCase) full() string {
	total := format.Bytes(v.gpu.Total)
	room := "The GPU is full: "
	if v.free() > v.gpu.Total/20 {
		room = fmt.Sprintf("Only %s are free: ", format.Bytes(v.free()))
	}
	switch live := min(v.o.Allocated, v.own); {
	case v.own+v.others() < v.used/2:
		return fmt.Sprintf("%s%s of %s are used, most of it by processes that NVML omits.", room, format.Bytes(v.used), total)
	case v.own < v.others():
		return fmt.Sprintf("%sthis process holds %s of %s, the others hold %s.", room, format.Bytes(v.own), total, format.Bytes(v.others()))
	case v.o.FromTorch() && live >= v.own/2:
		return fmt.Sprintf("%slive tensors hold %s of %s.", room, format.Bytes(v.o.Allocated), total)
	case v.o.FromTorch():
		return fmt.Sprintf("%sthis process holds %s of %s, of which %s are live tensors and %s are cached.",
			room, format.Bytes(v.own), total, format.Bytes(v.o.Allocated), format.Bytes(v.cached()))
	}
	return fmt.Sprintf("%sthis process holds %s of %s.", room, format.Bytes(v.own), total)
}
