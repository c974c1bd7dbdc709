// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"fmt"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Checkpointed is what recomputation of a function saves.
type Checkpointed struct {
	Function   Function
	Calls      int    // in forward passes whose backward pass was recorded
	Activation uint64 // bytes that these calls save for the backward pass, without their outputs
}

// Checkpoint returns the program in which each call of a function is recomputed in the backward pass, as
// torch.utils.checkpoint does with use_reentrant=False: what the call saves is freed when it returns, and
// is allocated again before the backward pass uses it.
func (p *Program) Checkpoint(f Function) (*Program, Checkpointed, error) {
	done := Checkpointed{Function: f}
	calls, err := p.calls(f)
	if err != nil {
		return nil, done, err
	}
	e := p.edit()
	weights := p.weightCasts()
	saving := map[uint32]bool{} // sites of what is recomputed
	var untrained []call
	for _, c := range calls {
		saved := p.saved(c)
		if len(saved) == 0 {
			untrained = append(untrained, c)
			continue
		}
		done.Calls++
		first := len(p.Trace.Ops)
		for _, b := range saved {
			first = min(first, p.until(b))
			saving[p.Trace.Blocks[b].Site] = true
			done.Activation += p.size(b)
		}
		for _, b := range saved {
			before := c.end
			if weights(b) { // autocast keeps them until its end
				before = p.passes[p.passAt(c.begin)].backward
			}
			e.early[before] = append(e.early[before], b)
		}
		e.recompute(c, saved, p.nodeOf(first))
	}
	if done.Calls == 0 {
		return nil, done, fmt.Errorf("%v saves nothing for a backward pass that was recorded", f)
	}
	for _, c := range untrained { // a graph that is kept: its calls save the same, and nothing recomputes it
		for _, b := range c.blocks[:len(c.blocks)-1] {
			if saving[p.Trace.Blocks[b].Site] && p.until(b) > c.end {
				e.free(b, c.end)
			}
		}
	}
	return e.done(), done, nil
}

// calls finds the calls of a function in forward passes. A call ends where the program returns to the
// function's first line that allocates, or leaves the function.
func (p *Program) calls(f Function) ([]call, error) {
	at := make([]int, len(p.Stacks)) // the function's line, 0: not below it
	files := map[string]bool{}
	recomputed := false
	for i, s := range p.Stacks {
		k := f.outermost(s)
		if k < 0 {
			continue
		}
		if p.sites[i].backward {
			recomputed = true
			continue
		}
		at[i] = max(s[k].Line, 1)
		files[s[k].File+" "+s[k].Function] = true
	}
	switch {
	case recomputed:
		return nil, fmt.Errorf("%v is recomputed already", f)
	case len(files) == 0:
		return nil, fmt.Errorf("%v allocates nothing in a forward pass of this trace", f)
	case len(files) > 1:
		return nil, fmt.Errorf("%v is %d functions: name its class and its file, as FILE:CLASS.NAME", f, len(files))
	}
	var calls []call
	first, elsewhere, open := 0, false, false
	for i, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		line := 0
		if n := p.Trace.Blocks[op.Block].Site; int64(n) < int64(len(at)) {
			line = at[n]
		}
		if open && (line == 0 || line == first && elsewhere) {
			calls[len(calls)-1].end = i
			open = false
		}
		if line == 0 {
			continue
		}
		if !open {
			calls = append(calls, call{begin: i, end: len(p.Trace.Ops)})
			open, first, elsewhere = true, line, false
		}
		elsewhere = elsewhere || line != first
		c := &calls[len(calls)-1]
		c.blocks = append(c.blocks, op.Block)
	}
	return calls, nil
}

// saved returns what a call saves for the backward pass, without its output: what is live after it and
// freed in the backward pass. The output is what the backward pass frees first, before it comes to the
// call, unless the last block of the call is freed in the forward pass: then that was the output.
func (p *Program) saved(c call) (saved []uint32) {
	s := p.passes[p.passAt(c.begin)]
	if s.backward < 0 {
		return nil
	}
	for _, b := range c.blocks {
		if end := p.until(b); end > c.end && end > s.backward && end < s.end {
			saved = append(saved, b)
		}
	}
	last := c.blocks[len(c.blocks)-1]
	if len(saved) == 0 || p.until(last) > c.end && p.until(last) < s.backward {
		return saved
	}
	output := slices.MinFunc(saved, func(a, b uint32) int { return p.until(a) - p.until(b) })
	return slices.DeleteFunc(saved, func(b uint32) bool { return b == output })
}

// nodeOf returns where the node of the backward pass begins that frees a block: after the operation
// before the allocations that precede the free.
func (p *Program) nodeOf(free int) int {
	i := free
	for i > 0 && isFree(p.Trace.Ops[i-1].Kind) {
		i--
	}
	for i > 0 && p.Trace.Ops[i-1].Kind == allocsim.Malloc && p.site(p.Trace.Ops[i-1].Block).backward {
		i--
	}
	return i
}

// recompute repeats a call before an operation. It stops with the last block that is saved; the others
// that are live then are freed.
func (e *edit) recompute(c call, saved []uint32, before int) {
	mine, copies := map[uint32]bool{}, map[uint32]uint32{}
	for _, b := range c.blocks {
		mine[b] = true
	}
	stop := e.lives[saved[len(saved)-1]].Malloc
	var ops []allocsim.Op
	for _, op := range e.Trace.Ops[c.begin : stop+1] {
		switch {
		case !mine[op.Block]:
		case op.Kind == allocsim.Malloc:
			copies[op.Block] = e.again(op.Block)
			ops = append(ops, allocsim.Op{Kind: allocsim.Malloc, Block: copies[op.Block]})
		case op.Kind == allocsim.Free || op.Kind == allocsim.FreeRequested:
			ops = append(ops, allocsim.Op{Kind: allocsim.Free, Block: copies[op.Block]})
			delete(copies, op.Block)
		}
	}
	for _, b := range saved {
		e.rename[b] = copies[b]
		delete(copies, b)
	}
	for _, b := range c.blocks {
		if again, live := copies[b]; live {
			ops = append(ops, allocsim.Op{Kind: allocsim.Free, Block: again})
		}
	}
	e.insert[before] = append(e.insert[before], ops...)
}

// weightCasts returns a function that recognizes autocast's copies of weights, which it keeps until it
// ends: they have half the size of a weight.
func (p *Program) weightCasts() func(block uint32) bool {
	halves := map[uint64]bool{}
	for _, op := range p.Trace.Ops {
		if op.Kind == allocsim.Malloc && p.site(op.Block).role == loading {
			halves[p.size(op.Block)/2] = true
		}
	}
	return func(block uint32) bool { return p.site(block).cast && halves[p.size(block)] }
}

// Candidates returns the functions of forward passes that save most for the backward pass, most first.
func (p *Program) Candidates(own func(*callstack.Frame) bool) []Function {
	sums := map[Function]uint64{}
	for _, s := range p.passes {
		if s.backward < 0 {
			continue
		}
		for i := s.begin; i < s.backward; i++ {
			op := p.Trace.Ops[i]
			if op.Kind != allocsim.Malloc || p.until(op.Block) <= s.backward || p.until(op.Block) >= s.end {
				continue
			}
			seen := map[Function]bool{}
			for _, f := range p.stack(op.Block) {
				if f := (Function{f.File, f.Function}); !seen[f] {
					seen[f] = true
				}
			}
			for i := range p.stack(op.Block) {
				f := &p.stack(op.Block)[i]
				key := Function{f.File, f.Function}
				if f.Python && method(f.Function) == "forward" && own(f) && seen[key] {
					seen[key] = false
					sums[key] += p.size(op.Block)
				}
			}
		}
	}
	var all []Function
	for f := range sums {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Function) int {
		if sums[a] != sums[b] {
			if sums[a] > sums[b] {
				return -1
			}
			return 1
		}
		return slices.Compare([]string{a.file, a.name}, []string{b.file, b.name})
	})
	return all
}

func (p *Program) stack(block uint32) []callstack.Frame {
	if n := p.Trace.Blocks[block].Site; int64(n) < int64(len(p.Stacks)) {
		return p.Stacks[n]
	}
	return nil
}
