// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"
	"fmt"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// DropGradients returns the program that calls optimizer.zero_grad(set_to_none=True) right after
// each optimizer.step().
func (p *Program) DropGradients() (*Program, Evidence, error) {
	var done Evidence
	e := p.edit()
	first := map[int][]uint32{} // gradients that are never dropped, by the pass that allocates them
	for _, op := range p.Trace.Ops {
		b := op.Block
		if op.Kind != allocsim.Malloc || !p.site(b).backward || p.site(b).role == forward || p.site(b).workspace {
			continue
		}
		born := p.passAt(p.lives[b].Malloc)
		if p.passes[born].backward < 0 || p.until(b) <= p.passes[born].end {
			continue
		}
		if p.kept(b) {
			if born < len(p.passes)-1 { // of the last pass: nothing comes after it
				first[born] = append(first[born], b)
			}
			continue
		}
		// Freed in a later pass, after the forward pass there has begun.
		if freed := p.passAt(p.lives[b].Free); p.passes[freed].begin < p.lives[b].Free {
			e.free(b, p.passes[freed].begin)
			done.Count++
		}
	}
	if len(first) > 0 {
		if err := p.dropZeroed(e, first, &done); err != nil {
			return nil, done, err
		}
	}
	if done.Count == 0 {
		return nil, done, errors.New("the program drops its gradients before each forward pass already")
	}
	done.Bytes = p.gradientBytes(e)
	return e.done(), done, nil
}

// gradientBytes returns the most bytes of gradients of one pass that are freed earlier.
func (p *Program) gradientBytes(e *edit) (most uint64) {
	sums := map[int]uint64{}
	for b := range e.moved {
		n := p.passAt(p.lives[b].Malloc)
		sums[n] += p.size(b)
		most = max(most, sums[n])
	}
	return most
}

// dropZeroed drops gradients that the program sets to zero. The first pass after each step of the
// optimizer makes new ones, as its first pass did: what it adds to a gradient and frees becomes the
// gradient.
func (p *Program) dropZeroed(e *edit, first map[int][]uint32, done *Evidence) error {
	if len(first) > 1 {
		return fmt.Errorf("the gradients appear in %d different passes", len(first))
	}
	steps := 0
	for _, s := range p.passes {
		if s.stepped >= 0 {
			steps++
		}
	}
	if steps < 2 {
		return errors.New("the optimizer allocates nothing in its steps, so nothing shows where they end")
	}
	for born, gradients := range first {
		isGradient := map[uint32]bool{}
		for _, b := range gradients {
			isGradient[b] = true
			e.free(b, p.stepEnd(born))
			done.Count++
		}
		model := p.backwardOf(born)
		fresh := p.stepEnd(born) // the pass that begins here makes gradients
		for n := born + 1; n < len(p.passes); n++ {
			s := p.passes[n]
			if s.backward < 0 || s.begin < fresh {
				continue
			}
			fresh = p.stepEnd(n)
			same := p.backwardOf(n)
			if len(same) != len(model) {
				return fmt.Errorf("backward passes differ: one allocates %d times, another %d times", len(model), len(same))
			}
			for i, b := range model {
				if !isGradient[b] {
					continue
				}
				if p.size(same[i]) != p.size(b) {
					return fmt.Errorf("backward passes differ in the sizes of gradients")
				}
				e.free(same[i], fresh)
			}
		}
	}
	return nil
}

// backwardOf returns the blocks of a backward pass in order, without the workspaces of cuBLAS and
// the copies that only the first one makes.
func (p *Program) backwardOf(n int) (blocks []uint32) {
	s := p.passes[n]
	for i := s.backward; i < s.end; i++ {
		op := p.Trace.Ops[i]
		if op.Kind != allocsim.Malloc {
			continue
		}
		if at := p.site(op.Block); at.backward && !at.workspace && !at.accumulates {
			blocks = append(blocks, op.Block)
		}
	}
	return blocks
}

// once fails where a backward pass is differentiated itself, as with create_graph: after another
// forward pass, a backward pass frees what nodes of the first one made, besides gradients of
// weights, and nothing shows what saved that.
func once(p *Program) error {
	gradients := weightGradients(p)
	turns := 0 // from a backward pass to a forward pass
	backward := false
	made := map[uint32]int{} // the turns before it was made
	for _, op := range p.Trace.Ops {
		b := op.Block
		if op.Kind == allocsim.Malloc {
			s := p.site(b)
			if backward && !s.backward && s.role == forward {
				turns++
			}
			backward = s.backward || backward && s.role != forward
			if s.backward && s.role != forward && !s.accumulates && s.node != "" && !gradients[b] && p.size(b) >= noticeable {
				made[b] = turns
			}
			continue
		}
		if at, ok := made[b]; ok && isFree(op.Kind) && at < turns && backward && freedBy(p, b) != "" {
			return errors.New("its backward pass is differentiated too, and nothing shows what that saves")
		}
	}
	return nil
}
