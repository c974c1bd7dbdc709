// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/remedy"
)

const (
	variations = 8
	variedBy   = 100 // a size differs by one part of so many at most
)

// vary widens what a changed program reserves. A prediction has not each of its blocks, and how
// much lies free beside others at a peak depends on each: from what the program runs in, up to the
// most of some programs whose sizes differ a little.
func (p *player) vary(out *Outcome) error {
	if len(out.Scenario.Remedies) == 0 {
		return nil
	}
	out.Reserved.Low = min(out.Reserved.Low, out.RunsIn.Low)
	own := p.trace
	defer func() { p.trace = own }()
	for seed := range uint64(variations) {
		p.trace = own.Resize(func(_ uint32, b allocsim.Block) uint64 { return varied(b.Requested, seed) })
		r, err := p.run(allocsim.Rising, 0)
		if err != nil {
			return err
		}
		out.Reserved.add(r.PeakReserved)
	}
	return nil
}

// varied returns a size that differs from another one, which has the same one each time.
func varied(size, seed uint64) uint64 {
	x := size*0x9e3779b97f4a7c15 ^ (seed+1)*0xbf58476d1ce4e5b9
	x ^= x >> 29
	x *= 0x94d049bb133111eb
	x ^= x >> 32
	most := size / variedBy
	return size - most + x%(2*most+1)
}

// unsure returns an outcome that depends where only what lies free beside blocks makes an offloaded
// program run out of memory: it has a fourth more than its blocks need, and nobody knows in which
// order they leave the GPU.
func (out Outcome) unsure(capacity uint64) Outcome {
	offloads := slices.ContainsFunc(out.Scenario.Remedies, func(a Applied) bool { return a.Remedy.Kind == remedy.ToHost })
	if offloads && out.Verdict == OutOfMemory && capacity >= out.Allocated.Low/4*5 {
		out.Verdict = Depends
	}
	return out
}
