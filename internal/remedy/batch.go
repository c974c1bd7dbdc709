// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// place is an allocation that passes have in common: the nth of a site.
type place struct{ site, nth uint32 }

// passSizes are the bytes that a pass asks for at each place.
type passSizes map[place]uint64

const (
	tolerance  = 0.02    // of a ratio
	noticeable = 1 << 16 // bytes: smaller blocks prove no ratio
	inCommon   = 0.8     // of the bytes of a pass: two captures of one program have more
)

// Batch returns two programs whose batches are factor times as large. Each allocation of a step
// grows as it did between the smallest and the largest step of the trace, or of the program that it
// is compared with. Allocations of which no second size was seen stay as they are in one program,
// and scale in the other; low has the smaller ones. It returns an error if the steps have one size,
// or differ in more than the batch.
func (p *Program) Batch(factor float64) (low, high *Program, done Evidence, err error) {
	if factor <= 0 {
		return nil, nil, done, errors.New("a batch is multiplied by more than 0")
	}
	number := numbered(p)
	own := placesOf(p, number)
	all := make([]passSizes, 0, len(own))
	for _, pass := range own {
		all = append(all, sizesOf(p, pass.blocks))
	}
	mine := len(all)
	if q := p.beside; q != nil {
		for _, pass := range placesOf(q, number) {
			all = append(all, sizesOf(q, pass.blocks))
		}
	}
	small, large := extremesOf(all)
	if small == large {
		return nil, nil, done, errors.New("all steps have one size: record some with another size of batch, of the same shapes otherwise, and name that file as well")
	}
	if (small < mine) != (large < mine) {
		if share := min(shared(all[small], large, mine, all), shared(all[large], small, mine, all)); share < inCommon {
			return nil, nil, done, fmt.Errorf("the two files are not of one program: steps have only %.0f%% in common", 100*share)
		}
	}
	done.Count = len(all)
	if done.Ratio, err = ratioOf(all[small], all[large]); err != nil {
		return nil, nil, done, err
	}
	// Bytes for one batch of the smallest pass.
	slope := map[place]float64{}
	for at, b := range all[large] {
		if a, ok := all[small][at]; ok {
			slope[at] = (float64(b) - float64(a)) / (done.Ratio - 1)
			done.Bytes += uint64(max(0, slope[at]*done.Ratio))
		}
	}
	change := func(unknown bool) *Program {
		to := map[uint32]uint64{}
		for n, pass := range own {
			batch := batchOf(all[n], all[small], slope)
			for at, b := range pass.blocks {
				if by, ok := slope[at]; ok {
					to[b] = uint64(max(1, math.Round(float64(p.size(b))+by*batch*(factor-1))))
				} else if isScalable(p, b, pass.number) {
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

// places are the blocks of a pass by their places.
type places struct {
	number int // of the pass
	blocks map[place]uint32
}

// placesOf returns the places of each pass with a backward pass.
func placesOf(p *Program, number func(*Program, uint32) uint32) (all []places) {
	for n, s := range p.passes {
		if s.backward < 0 {
			continue
		}
		blocks, count := map[place]uint32{}, map[uint32]uint32{}
		for _, op := range p.Trace.Ops[s.begin:s.end] {
			if op.Kind != allocsim.Malloc || p.site(op.Block).workspace || p.site(op.Block).role == loading {
				continue
			}
			at := number(p, p.Trace.Blocks[op.Block].Site)
			blocks[place{at, count[at]}] = op.Block
			count[at]++
		}
		all = append(all, places{n, blocks})
	}
	return all
}

func sizesOf(p *Program, blocks map[place]uint32) passSizes {
	sizes := make(passSizes, len(blocks))
	for at, b := range blocks {
		sizes[at] = p.size(b)
	}
	return sizes
}

// extremesOf returns the passes that allocate least and most, at places that several passes have.
func extremesOf(all []passSizes) (small, large int) {
	passes := map[place]int{}
	for _, pass := range all {
		for at := range pass {
			passes[at]++
		}
	}
	sums := make([]uint64, len(all))
	for n, pass := range all {
		for at, bytes := range pass {
			if passes[at] > 1 {
				sums[n] += bytes
			}
		}
		if sums[n] < sums[small] {
			small = n
		}
		if sums[n] > sums[large] {
			large = n
		}
	}
	return small, large
}

// shared returns the share of the bytes of a pass for which some pass of the other file has places.
// That file has the n-th of all passes, of which the first ones are of one file: only the first
// step of a program allocates its optimizer's state.
func shared(pass passSizes, n, first int, all []passSizes) float64 {
	other := all[:first]
	if n >= first {
		other = all[first:]
	}
	var both, sum uint64
	for at, bytes := range pass {
		sum += bytes
		if slices.ContainsFunc(other, func(x passSizes) bool { _, ok := x[at]; return ok }) {
			both += bytes
		}
	}
	return float64(both) / float64(max(sum, 1))
}

// ratioOf returns the ratio of two batches: the one that most bytes have.
func ratioOf(small, large passSizes) (float64, error) {
	weight := map[int]uint64{}
	var ratios []float64
	for at, b := range large {
		a, ok := small[at]
		if !ok || a == 0 || b < noticeable || b == a {
			continue
		}
		r := float64(b) / float64(a)
		ratios = append(ratios, r)
		weight[int(math.Round(math.Log(r)/tolerance))] += b
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
	var same []float64
	for _, r := range ratios {
		if int(math.Round(math.Log(r)/tolerance)) == best {
			same = append(same, r)
		}
	}
	ratio := sum(same) / float64(len(same))
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
func batchOf(pass, small passSizes, slope map[place]float64) float64 {
	var sums, weights []float64
	for at, by := range slope {
		if bytes, ok := pass[at]; ok && by >= noticeable {
			sums = append(sums, by+float64(bytes)-float64(small[at]))
			weights = append(weights, by)
		}
	}
	if len(weights) == 0 {
		return 1
	}
	return sum(sums) / sum(weights)
}

// sum adds numbers in an order that does not depend on that of a map.
func sum(list []float64) (x float64) {
	slices.Sort(list)
	for _, a := range list {
		x += a
	}
	return x
}

// isScalable reports whether a block may scale with the batch: it lives for a pass at most.
func isScalable(p *Program, b uint32, pass int) bool {
	s := p.site(b)
	return s.role != optimizer && p.until(b) <= p.passes[pass].end && p.size(b) >= noticeable
}
