// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// A place is an allocation that passes have in common.
type place struct{ site, nth uint32 }

const (
	tolerance  = 0.02    // of a ratio
	noticeable = 1 << 16 // bytes: smaller blocks prove no ratio
)

// Batch returns two programs whose batches are factor times as large. Each allocation of a step grows as
// it did between the smallest and the largest step of the trace. Allocations of which no second size was
// seen stay as they are in the first program, and scale in the second.
func (p *Program) Batch(factor float64) (low, high *Program, done Evidence, err error) {
	if factor <= 0 {
		return nil, nil, done, errors.New("a batch is multiplied by more than 0")
	}
	sizes := placesOf(p)
	small, large := extremesOf(p, sizes)
	if small == large {
		return nil, nil, done, errors.New("all steps have one size: record some with another size of batch, of the same shapes otherwise")
	}
	done.Count = len(sizes)
	ratio, err := ratioOf(sizes[small], sizes[large], p)
	if err != nil {
		return nil, nil, done, err
	}
	done.Ratio = ratio
	// Bytes for one batch of the smallest pass.
	slope := map[place]float64{}
	for at, b := range sizes[large] {
		if a, ok := sizes[small][at]; ok {
			slope[at] = (float64(p.size(b)) - float64(p.size(a))) / (ratio - 1)
			done.Bytes += uint64(max(0, slope[at]*ratio))
		}
	}
	change := func(unknown bool) *Program {
		to := map[uint32]uint64{}
		for n, pass := range sizes {
			batch := batchOf(p, pass, sizes[small], slope)
			for at, b := range pass {
				if by, ok := slope[at]; ok {
					to[b] = uint64(max(1, math.Round(float64(p.size(b))+by*batch*(factor-1))))
				} else if isScalable(p, b, n) {
					done.Unknown += p.size(b)
					if unknown {
						to[b] = uint64(max(1, math.Round(float64(p.size(b))*factor)))
					}
				}
			}
		}
		return p.resize(func(b uint32) uint64 {
			if n, ok := to[b]; ok {
				return n
			}
			return p.size(b)
		})
	}
	low, high = change(factor < 1), change(factor > 1)
	done.Unknown /= 2
	return low, high, done, nil
}

// placesOf returns the blocks of each pass with a backward pass, by their places.
func placesOf(p *Program) map[int]map[place]uint32 {
	all := map[int]map[place]uint32{}
	for n, s := range p.passes {
		if s.backward < 0 {
			continue
		}
		blocks, count := map[place]uint32{}, map[uint32]uint32{}
		for _, op := range p.Trace.Ops[s.begin:s.end] {
			if op.Kind != allocsim.Malloc || p.site(op.Block).workspace || p.site(op.Block).role == loading {
				continue
			}
			at := p.Trace.Blocks[op.Block].Site
			blocks[place{at, count[at]}] = op.Block
			count[at]++
		}
		all[n] = blocks
	}
	return all
}

// extremesOf returns the passes that allocate least and most, of those with the largest number of places in common.
func extremesOf(p *Program, sizes map[int]map[place]uint32) (small, large int) {
	sum := func(n int) (bytes uint64) {
		for at, b := range sizes[n] {
			if !onlyOnce(p, sizes, at) {
				bytes += p.size(b)
			}
		}
		return bytes
	}
	order := sorted(sizes)
	if len(order) == 0 {
		return 0, 0
	}
	sums := map[int]uint64{}
	for _, n := range order {
		sums[n] = sum(n)
	}
	by := func(a, b int) int { return cmp.Compare(sums[a], sums[b]) }
	small, large = slices.MinFunc(order, by), slices.MaxFunc(order, by)
	if sums[small] == sums[large] {
		return small, small
	}
	return small, large
}

func sorted(sizes map[int]map[place]uint32) (order []int) {
	for n := range sizes {
		order = append(order, n)
	}
	slices.Sort(order)
	return order
}

// onlyOnce reports whether only one pass has a place.
func onlyOnce(p *Program, sizes map[int]map[place]uint32, at place) bool {
	n := 0
	for _, pass := range sizes {
		if _, ok := pass[at]; ok {
			if n++; n > 1 {
				return false
			}
		}
	}
	return true
}

// ratioOf returns the ratio of two batches: the one that most bytes have.
func ratioOf(small, large map[place]uint32, p *Program) (float64, error) {
	weight := map[int]uint64{}
	var ratios []float64
	for at, b := range large {
		a, ok := small[at]
		if !ok || p.size(b) < noticeable || p.size(b) == p.size(a) {
			continue
		}
		r := float64(p.size(b)) / float64(p.size(a))
		ratios = append(ratios, r)
		weight[int(math.Round(math.Log(r)/tolerance))] += p.size(b)
	}
	if len(weight) == 0 {
		return 0, errors.New("no large allocation of two steps differs in size")
	}
	best, most := 0, uint64(0)
	for k, w := range weight {
		if w > most || w == most && k < best {
			best, most = k, w
		}
	}
	ratio, n := 0.0, 0
	for _, r := range ratios {
		if int(math.Round(math.Log(r)/tolerance)) == best {
			ratio, n = ratio+r, n+1
		}
	}
	ratio /= float64(n)
	if ratio <= 1+tolerance {
		return 0, fmt.Errorf("the steps differ by a factor of %.2f only", ratio)
	}
	for _, r := range ratios {
		if r > ratio*(1+2*tolerance) {
			return 0, fmt.Errorf("the steps differ in more than the batch: most memory grows by a factor of %.2f, some by %.2f", ratio, r)
		}
	}
	return ratio, nil
}

// batchOf returns the batch of a pass, relative to that of the smallest.
func batchOf(p *Program, pass, small map[place]uint32, slope map[place]float64) float64 {
	sum, weight := 0.0, 0.0
	for at, by := range slope {
		b, ok := pass[at]
		a, also := small[at]
		if ok && also && by >= noticeable {
			sum += by + float64(p.size(b)) - float64(p.size(a))
			weight += by
		}
	}
	if weight == 0 {
		return 1
	}
	return sum / weight
}

// isScalable reports whether a block may scale with the batch: it lives for a pass at most.
func isScalable(p *Program, b uint32, pass int) bool {
	s := p.site(b)
	return s.role != optimizer && p.until(b) <= p.passes[pass].end && p.size(b) >= noticeable
}
