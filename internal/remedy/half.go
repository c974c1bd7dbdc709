// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// Halved is what half precision saves.
type Halved struct {
	Bytes   uint64 // of blocks that are halved, all that were ever allocated
	Unknown uint64 // of blocks that may be numbers or not: batches, results
}

// Half returns two programs whose weights, activations, gradients and state have two bytes for each
// element, as model.bfloat16() with inputs of that type: in the first one, what modules do not allocate
// is halved too; in the second one it is not. Masks, indices and statistics keep their sizes.
func (p *Program) Half() (low, high *Program, done Halved, err error) {
	if p.Element != 4 {
		return nil, nil, done, errors.New("the weights have half precision already")
	}
	fixed := p.fixed()
	named := false
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		s := p.site(op.Block)
		if s.cast {
			return nil, nil, done, errors.New("the program computes in half precision already, by autocast")
		}
		named = named || s.role != other
		switch {
		case fixed[op.Block]:
		case s.role == other && !s.backward:
			done.Unknown += p.size(op.Block)
		default:
			done.Bytes += p.size(op.Block)
		}
	}
	if !named {
		return nil, nil, done, errors.New("no stack trace of this trace goes through a module of torch.nn")
	}
	size := func(inputs bool) *Program {
		q := p.resize(func(b uint32) uint64 {
			s := p.site(b)
			if fixed[b] || s.role == other && !s.backward && !inputs {
				return p.size(b)
			}
			return (p.size(b) + 1) / 2
		})
		q.Element = 2
		return q
	}
	return size(true), size(false), done, nil
}

// fixed returns the blocks whose elements do not depend on the precision: masks of dropout, indices of
// pooling, statistics of normalization, workspaces. An operation's blocks follow each other.
func (p *Program) fixed() map[uint32]bool {
	fixed := map[uint32]bool{}
	last := uint32(0)
	known, before := false, uint32(0) // the block before, and its site
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		b, at := op.Block, p.Trace.Blocks[op.Block].Site
		s := p.site(b)
		follows := known && p.Trace.Blocks[before].Site == at
		switch s.operation {
		case dropout:
			fixed[b] = follows && p.size(b)*p.Element == p.size(last)
		case pooling:
			fixed[b] = follows && p.size(b)*p.Element == p.size(last)*8
		case normalize:
			fixed[b] = !s.backward && follows && p.size(b) < p.size(last)
		}
		fixed[b] = fixed[b] || s.workspace
		if !follows {
			last = b
		}
		known, before = true, b
	}
	return fixed
}
