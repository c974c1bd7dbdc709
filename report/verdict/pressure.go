// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
)

const outOfMemory = 2 // result of CUDA calls

// minWaste is the least size of a cache that is worth advice.
const minWaste = 64 << 20

func (a *adviser) tensors(p int, device int32) *ledger.Tensors {
	if device < 0 {
		return nil
	}
	return a.s.TensorsOn(p, device)
}

// failed returns the largest failed allocation of a process.
func (a *adviser) failed(p int) (largest uint64, any bool) {
	largest, any = a.largest[p]
	return largest, any
}

// fragmentation detects memory that is reserved, but was never in use at once or is in pieces too
// small to use. What that is made of is known where the allocator was read: then the advice is on
// the largest part. What settings such as expandable_segments would save, only a replay can tell.
func (a *adviser) fragmentation(p int, device int32) {
	t := a.tensors(p, device)
	if t == nil || t.Reserved == 0 || a.s.Processes[p].End != 0 && a.s.CacheOn(p, device) == nil {
		return
	}
	c := a.s.CacheOn(p, device)
	if c != nil && a.stranded(p, device, c) || t.LargestFree > t.Cached/4 {
		return
	}
	expandable := a.sites(p, device, func(x *ledger.Site, _ *Verdict) bool { return x.Segment && x.Kind == ledger.VMM })
	if c == nil && len(expandable) > 0 { // its free pages may have no memory
		return
	}
	peak := max(t.Peak, t.Allocated) // the allocator's own count
	evidence := fmt.Sprintf("%s are reserved and %s allocated, never more than %s at once", format.Bytes(t.Reserved), format.Bytes(t.Allocated), format.Bytes(peak))
	if t.LargestFree > 0 {
		evidence += ", largest free run: " + format.Bytes(t.LargestFree)
	}
	size, oom := a.failed(p)
	never := t.Reserved - min(t.Reserved, peak+t.OlderCached) // older segments may have been full before the attach
	switch {
	case oom && t.LargestFree > 0 && t.LargestFree < size && size <= t.Cached:
		evidence += fmt.Sprintf(", and %s were not available", format.Bytes(size))
	case never >= t.Reserved/4 && never >= minWaste:
	default:
		return
	}
	row := a.stuck(p, device)
	text, bytes := "PyTorch's cache is in pieces that its tensors do not use; a capture shows what settings would save: vramprof whatif FILE.vram", never
	switch {
	case row != nil:
		text, bytes = "tensors lie between the free pieces of PyTorch's cache: free them, or allocate them before the large ones", row.Free
	case c != nil && c.Idle >= c.Cached/2:
		text, bytes = "PyTorch's cache is not in use: torch.cuda.empty_cache() gives it back", c.Idle
	}
	advice := a.say(Fragmentation, p, device, nil, text, evidence)
	if advice.Bytes = bytes; row != nil {
		advice.holds(row)
	}
}

// stranded detects free memory that only other streams, or only graphs and memory pools, can use,
// and reports whether it is the largest part of a cache.
func (a *adviser) stranded(p int, device int32, c *ledger.AllocatorCache) bool {
	var streams, idle, private uint64
	on, pools := map[uint64]bool{}, map[caching.PoolID]bool{}
	for i := range c.Arenas {
		x := &c.Arenas[i]
		switch {
		case x.Free < minArena:
		case x.Pool.Private():
			private += x.Free
			pools[x.Pool] = true
		case x.Stream != c.Main:
			streams, idle = streams+x.Free, idle+x.Idle
			on[x.Stream] = true
		}
	}
	if max(streams, private) < max(minWaste, c.Cached/4) {
		return false
	}
	line, bytes := a.grewCache(p, device)
	evidence := fmt.Sprintf("of %s of cache", format.Bytes(c.Cached))
	var advice *Advice
	if streams >= private {
		text := fmt.Sprintf("%s of PyTorch's cache are free on %s, and no other stream can use them: use the same streams again, and allocate on the current stream what they fill",
			format.Bytes(streams), format.Count(uint64(len(on)), "side stream"))
		if idle > 0 {
			evidence += fmt.Sprintf(", torch.cuda.empty_cache() gives back %s of them", format.Bytes(idle))
		}
		advice = a.say(Streams, p, device, nil, text, evidence)
		advice.Bytes = streams
	} else {
		text := fmt.Sprintf("%s of PyTorch's cache are free in %s of CUDA graphs or MemPools, and nothing else can use them: capture graphs that do not run at once into one pool, and delete those that are not replayed",
			format.Bytes(private), format.Count(uint64(len(pools)), "private pool"))
		advice = a.say(Pools, p, device, nil, text, evidence)
		advice.Bytes = private
	}
	if bytes >= advice.Bytes/2 { // else it is unknown which of the lines made it
		advice.Line = line
	}
	return true
}

// minArena is the least free memory of an arena that is worth a word.
const minArena = 1 << 20

// grewCache returns the line whose segments have most of a cache, and how much of it.
func (a *adviser) grewCache(p int, device int32) (line callstack.Frame, bytes uint64) {
	lines := map[callstack.Frame]uint64{}
	for _, i := range a.sites(p, device, func(x *ledger.Site, v *Verdict) bool { return x.Segment && v.User }) {
		f := a.verdicts[i].Line
		f.Mapping = nil
		lines[f] += unused(&a.s.Sites[i])
		if lines[f] > bytes {
			line, bytes = f, lines[f]
		}
	}
	return line, bytes
}

// leastHeld is the least cache that is worth naming the lines that keep it from the driver.
const leastHeld = 16 << 20

// stuck returns the lines that keep the largest part of a cache from the driver, nil if that is
// little or unknown.
func (a *adviser) stuck(p int, device int32) *fragmentation.Row {
	for i := range a.caches {
		if c := &a.caches[i]; c.Process == p && c.Device == device && len(c.Rows) > 0 && c.Rows[0].Free >= max(leastHeld, c.Free/8) {
			return &c.Rows[0]
		}
	}
	return nil
}

// holds adds the lines whose tensors keep the cache from the driver.
func (x *Advice) holds(row *fragmentation.Row) {
	x.Evidence += "; " + row.HoldText() + ", from " + row.LinesText()
	if first := &row.Lines[0]; first.Sampled && frames.IsUser(&first.Frame) {
		x.Line = first.Frame
	}
}

// checkpointing detects a peak that consists of activations and nearly fills the GPU.
func (a *adviser) checkpointing(p int, device int32) {
	t, g := a.tensors(p, device), a.gpu(p, device)
	if t == nil || t.Peak == 0 {
		return
	}
	_, full := a.failed(p)
	if b := a.s.BalanceOf(p, device); b >= 0 && g != nil && g.Total > 0 && a.s.Balances[b].Peak >= g.Total/5*4 {
		full = true
	}
	sum := uint64(0)
	list := a.sites(p, device, func(x *ledger.Site, v *Verdict) bool {
		if v.Object != objectActivation || x.Kind != ledger.Tensor || v.Class >= Growing {
			return false
		}
		sum += x.Peak
		return true
	})
	if !full || sum < t.Peak/2 || len(list) == 0 {
		return
	}
	advice := a.say(Checkpointing, p, device, list, "activations make the peak: recompute them in the backward pass with torch.utils.checkpoint, or make the batch smaller",
		fmt.Sprintf("up to %s of activations, of a peak of %s", format.Bytes(min(sum, t.Peak)), format.Bytes(t.Peak)))
	advice.Bytes = min(sum, t.Peak)
}

// emptyCache detects a process on the same GPU that finds little or no memory while this one keeps
// some unused.
func (a *adviser) emptyCache(p int, device int32) {
	t, g := a.tensors(p, device), a.gpu(p, device)
	if t == nil || g == nil || a.s.Processes[p].End != 0 {
		return
	}
	cached := t.Cached + t.OlderCached
	if cached < max(g.Total/10, minWaste) {
		return
	}
	free := g.Total - min(g.Now(), g.Total)
	for _, i := range a.users[g.UUID] {
		b := &a.s.Balances[i]
		if b.Process == p {
			continue
		}
		size, oom := a.failed(b.Process)
		if !oom && (free >= g.Total/20 || a.s.Processes[b.Process].End != 0) {
			continue
		}
		evidence := fmt.Sprintf("%s are cached and not in use, process %d is on the same GPU, and %s are free", format.Bytes(cached), a.s.Processes[b.Process].PID, format.Bytes(free))
		if oom {
			evidence = fmt.Sprintf("%s are cached and not in use, and process %d on the same GPU could not get %s", format.Bytes(cached), a.s.Processes[b.Process].PID, format.Bytes(size))
		}
		text := "give the cache back with torch.cuda.empty_cache() after a peak, or limit it with torch.cuda.set_per_process_memory_fraction()"
		if row := a.stuck(p, device); row != nil && t.OlderCached == 0 && row.Free >= cached/2 {
			text = "free the tensors that keep the cache from the driver, then give it back with torch.cuda.empty_cache()"
			advice := a.say(EmptyCache, p, device, nil, text, evidence)
			advice.Bytes = row.Free
			advice.holds(row)
			return
		}
		a.say(EmptyCache, p, device, nil, text, evidence).Bytes = cached
		return
	}
}
