// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/tracer/ledger"
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
// small to use.
func (a *adviser) fragmentation(p int, device int32) {
	t := a.tensors(p, device)
	if t == nil || t.Reserved == 0 {
		return
	}
	expandable := a.sites(p, device, func(x *ledger.Site, _ *Verdict) bool { return x.Segment && x.Kind == ledger.VMM })
	if len(expandable) > 0 || t.LargestFree > t.Cached/4 {
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
	advice := a.say(Fragmentation, p, device, nil, "PyTorch's cache is fragmented: set PYTORCH_ALLOC_CONF=expandable_segments:True (before PyTorch 2.9: PYTORCH_CUDA_ALLOC_CONF)", evidence)
	if row := a.stuck(p, device); row != nil {
		advice.holds(row)
	}
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
	a.say(Checkpointing, p, device, list, "activations make the peak: recompute them in the backward pass with torch.utils.checkpoint, or make the batch smaller",
		fmt.Sprintf("up to %s of activations, of a peak of %s", format.Bytes(min(sum, t.Peak)), format.Bytes(t.Peak)))
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
			a.say(EmptyCache, p, device, nil, text, evidence).holds(row)
			return
		}
		a.say(EmptyCache, p, device, nil, text, evidence)
		return
	}
}
