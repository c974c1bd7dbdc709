// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// Half returns two programs whose weights, activations, gradients and state have two bytes for each
// element, as model.bfloat16() with inputs of that type: in the first one, what modules do not
// allocate is halved too; in the second one it is not. Masks, indices and statistics keep their
// sizes.
func (p *Program) Half() (low, high *Program, done Evidence, err error) {
	if p.Element != 4 {
		return nil, nil, done, errors.New("the weights have half precision already")
	}
	fixed, sure := p.fixed(), p.numbers()
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
		case !sure(op.Block):
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
			if fixed[b] || !inputs && !sure(b) {
				return p.size(b)
			}
			return (p.size(b) + 1) / 2
		})
		q.Element = 2
		return q
	}
	return size(true), size(false), done, nil
}

// numbers returns a function that reports whether a block has floating-point numbers for sure: of
// modules, backward passes and optimizers, of operators that give nothing else, or of the size of a
// weight.
func (p *Program) numbers() func(block uint32) bool {
	weights := map[uint64]bool{}
	for _, op := range p.Trace.Ops {
		if op.Kind == allocsim.Malloc && p.site(op.Block).role == loading {
			weights[p.size(op.Block)] = true
		}
	}
	return func(b uint32) bool {
		s := p.site(b)
		return s.role != other || s.backward || s.number || weights[p.size(b)] && !s.input
	}
}

// fixed returns the blocks whose elements do not depend on the precision: masks of dropout, indices
// of pooling, statistics of normalization, sums, workspaces.
func (p *Program) fixed() map[uint32]bool {
	fixed := map[uint32]bool{}
	eachResult(p, func(b, output uint32) {
		s := p.site(b)
		switch {
		case s.workspace:
			fixed[b] = true
		case b == output || s.operation == plain:
		case s.operation == dropout:
			fixed[b] = p.size(b)*p.Element == p.size(output)
		case s.operation == pooling:
			fixed[b] = p.size(b)*p.Element == p.size(output)*8
		case s.operation == normalize:
			fixed[b] = !s.backward && p.size(b) < p.size(output)
		case s.operation == reduce:
			fixed[b] = true
		}
	})
	return fixed
}

// eachResult goes through all blocks, each with the output of its operation: the first one that
// this allocated.
func eachResult(p *Program, visit func(block, output uint32)) {
	var output, before uint32 // before: the block before this one
	known := false
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		b, s := op.Block, p.site(op.Block)
		if last := p.site(before); !known || s.operation != last.operation || s.line != last.line || s.backward != last.backward {
			output = b
		}
		known, before = true, b
		visit(b, output)
	}
}
