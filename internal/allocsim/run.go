// SPDX-License-Identifier: Apache-2.0

package allocsim

import "fmt"

// Run replays a trace. It fails if the trace contradicts itself, or if its version of PyTorch is
// not among those whose rules are proven.
func Run(t *Trace, s Settings, o Options) (Result, error) {
	return run(t, s, o, nil)
}

func run(t *Trace, s Settings, o Options, see observer) (Result, error) {
	rules, err := RulesOf(t.Version)
	if err != nil {
		return Result{}, err
	}
	if s.Expandable && !rules.Expandable {
		return Result{}, fmt.Errorf("PyTorch %s has no expandable_segments", rules.Version)
	}
	total := o.Total
	if total == 0 {
		total = t.Total
	}
	if total == 0 && s.Fraction > 0 {
		return Result{}, fmt.Errorf("a memory fraction of a GPU of unknown size")
	}
	r := replay{allocator: newAllocator(s, o, total), trace: t, observer: see}
	r.work = workFor(t)
	if err := r.start(); err != nil {
		return Result{}, err
	}
	r.result.Failed = -1
	for i := range t.Ops {
		done, err := r.step(i)
		if err != nil {
			return Result{}, err
		}
		if done {
			break
		}
	}
	r.result.EndReserved, r.result.PeakReserved = r.reserved, r.peak
	r.result.Retries, r.result.OrderMatters = r.retries, r.orderMatters
	r.result.Segments = len(r.segments)
	return r.result, nil
}

// step does one operation. It reports whether the replay ends here: out of memory.
func (r *replay) step(i int) (done bool, err error) {
	op := &r.trace.Ops[i]
	if op.ofBlock() && int64(op.Block) >= int64(len(r.pieces)) {
		return false, fmt.Errorf("operation %d is of block %d, of %d", i, op.Block, len(r.pieces))
	}
	piece := none
	switch op.Kind {
	case Malloc:
		if piece, err = r.mallocBlock(i, op.Block); err != nil {
			return false, err
		}
		done = piece == none
	case Failed:
		if b := r.malloc(r.trace.Blocks[op.Block]); b != none {
			r.free(b, false)
		}
	case Free, FreeRequested, FreeCompleted:
		if err := r.freeBlock(i, op.Kind, op.Block); err != nil {
			return false, err
		}
	case EmptyCache:
		if !r.settings.NoEmptyCache {
			r.emptyCache()
		}
	case Step:
		r.steps++
		if every := r.settings.EmptyEvery; every > 0 && r.steps%every == 0 {
			r.emptyCache()
		}
	case PoolReleased:
		r.spend(len(r.pools))
		for _, p := range r.pools {
			p.released = p.released || p.number == op.Block && p.number != 0
		}
	default:
		return false, fmt.Errorf("operation %d is of unknown kind %d", i, op.Kind)
	}
	if r.work < 0 {
		return false, errTooMuchWork
	}
	if r.peak > r.peakSeen {
		r.peakSeen = r.peak
		r.result.PeakOp = i
		r.result.AtPeak = Cache{Whole: r.wholeFree, Stuck: r.freeBytes - r.wholeFree}
	}
	if r.allocated > r.result.PeakAllocated {
		r.result.PeakAllocated, r.result.PeakAllocOp = r.allocated, i
	}
	r.result.PeakRequested = max(r.result.PeakRequested, r.requested)
	if done {
		r.result.Failed, r.result.FailedReserved = i, r.reserved
		return true, nil
	}
	if r.observer != nil {
		return false, r.observer(r.allocator, i, piece)
	}
	return false, nil
}

func (r *replay) mallocBlock(i int, n uint32) (int32, error) {
	if r.pieces[n] != notYet {
		return none, fmt.Errorf("operation %d allocates block %d again", i, n)
	}
	b := r.malloc(r.trace.Blocks[n])
	if b != none {
		r.own(b, n)
	}
	return b, nil
}

func (r *replay) freeBlock(i int, kind Kind, n uint32) error {
	b := r.pieces[n]
	owned := b >= 0 && r.nodes[b].owner == n+1 // or its wait has ended since, when memory ran out
	switch {
	case b == notYet:
		return fmt.Errorf("operation %d frees block %d, which is not allocated", i, n)
	case kind == FreeCompleted && !owned:
		r.pieces[n] = gone
	case kind == FreeCompleted && r.nodes[b].state == waiting:
		r.complete(b)
		r.pieces[n] = gone
	case kind == FreeCompleted || !owned || r.nodes[b].state != live:
		return fmt.Errorf("operation %d frees block %d out of order", i, n)
	default:
		r.requested -= r.trace.Blocks[n].Requested
		r.free(b, kind == FreeRequested)
		if kind == Free {
			r.pieces[n] = gone
		}
	}
	return nil
}
