// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Checkpoint returns the program in which each call of a function is recomputed in the backward
// pass, as torch.utils.checkpoint does with use_reentrant=False: what the call saves is freed when
// it returns, and is allocated again before the backward pass uses it. Where the calls of a
// function that is one statement follow each other, and a loop below it may repeat what it does, as
// that of a Sequential, a capture does not show where a call ends. Then the programs with the least
// and the most memory differ.
func (p *Program) Checkpoint(f Function) (low, high *Program, done Evidence, err error) {
	calls, looped, err := p.calls(f, true)
	if err != nil {
		return nil, nil, done, err
	}
	if low, done, err = checkpoint(p, f, calls); err != nil || !looped {
		return low, low, done, err
	}
	whole, _, _ := p.calls(f, false)
	if high, _, err = checkpoint(p, f, whole); err != nil {
		return low, low, done, nil
	}
	if peak(low) > peak(high) {
		low, high = high, low
	}
	return low, high, done, nil
}

// checkpoint is Checkpoint with the calls that it found.
func checkpoint(p *Program, f Function, calls []call) (*Program, Evidence, error) {
	var done Evidence
	if err := once(p); err != nil {
		return nil, done, err
	}
	e := p.edit()
	weights := p.weightCasts()
	saving := map[string]bool{} // what is recomputed, wherever the function is called
	var untrained []call
	for _, c := range calls {
		saved, output := p.saved(c)
		if len(saved) == 0 {
			untrained = append(untrained, c)
			continue
		}
		done.Count++
		first := len(p.Trace.Ops)
		for _, b := range saved {
			first = min(first, p.until(b))
			saving[within(p, f.outermost(p.site(b).stack), b)] = true
			done.Bytes += p.size(b)
		}
		ends := p.ends(c, saved)
		for _, b := range saved {
			before := ends[b]
			if weights[b] { // autocast keeps them until its end
				before = p.passes[p.passAt(c.begin)].backward
			}
			e.early[before] = append(e.early[before], b)
		}
		if output.also { // the call saves its output as well, and recomputes it
			first = min(first, p.until(output.block))
			saved = append(saved, output.block)
			// What used it outside has no node left when the call's first one begins.
			before := p.nodeOf(first)
			if next := p.mallocAfter(c.end); c.end < len(p.Trace.Ops) && p.site(p.Trace.Ops[c.end].Block).operation == reduce {
				before = min(before, next)
			}
			e.early[before] = append(e.early[before], output.block)
		}
		last := first // the backward pass of the call ends
		for _, b := range saved {
			last = max(last, p.until(b))
		}
		for _, b := range p.consumed(c) { // recomputation needs the input
			e.free(b, last+1)
		}
		slices.SortFunc(saved, func(a, b uint32) int { return p.lives[a].Malloc - p.lives[b].Malloc })
		e.recompute(c, saved, p.nodeOf(first))
	}
	if done.Count == 0 {
		return nil, done, errors.New("it saves nothing for a backward pass that was recorded")
	}
	for _, c := range untrained { // a graph that is kept: its calls save the same, and nothing recomputes it
		var kept []uint32
		for _, b := range c.blocks[:len(c.blocks)-1] {
			if saving[within(p, f.outermost(p.site(b).stack), b)] && p.until(b) > c.end {
				kept = append(kept, b)
			}
		}
		ends := p.ends(c, kept)
		for _, b := range kept {
			e.free(b, ends[b])
		}
	}
	return e.done(), done, nil
}

// within names where a block was allocated, up to a frame of its stack: the same for all callers.
func within(p *Program, frame int, block uint32) string {
	var name strings.Builder
	for _, f := range p.site(block).stack[:frame+1] {
		fmt.Fprintf(&name, "%s:%d %s\n", f.File, f.Line, f.Function)
	}
	return name.String()
}

// calls finds the calls of a function in forward passes. A call ends where the program returns to
// the function's first line that allocates, or leaves the function. Where the function is one
// statement, it ends where that allocates what it allocated first. looped reports whether a loop
// below the statement may do that as well; without split, the call goes on there.
func (p *Program) calls(f Function, split bool) (calls []call, looped bool, err error) {
	at := map[uint32]int{}      // the function's line, 0: not below it
	single := map[uint32]bool{} // sites of functions that are one statement
	loop := map[uint32]bool{}   // and may have a loop below it
	files, roots := map[string]bool{}, map[string]bool{"": true}
	recomputed := false
	for i, s := range p.sites {
		k := f.outermost(s.stack)
		if k < 0 {
			continue
		}
		if s.backward {
			recomputed = true
			continue
		}
		at[i] = max(s.stack[k].Line, 1)
		single[i] = !repeats(s.stack[k])
		loop[i] = slices.ContainsFunc(s.stack[:k], repeats)
		files[s.stack[k].File+" "+s.stack[k].Function] = true
		roots[s.root] = true
	}
	switch {
	case recomputed:
		return nil, false, errors.New("it is recomputed already")
	case len(files) == 0:
		return nil, false, errors.New("it allocates nothing in a recorded forward pass")
	case len(files) > 1:
		return nil, false, fmt.Errorf("there are %d functions of this name: name the class and the file, as FILE:CLASS.NAME", len(files))
	}
	first, elsewhere, open := 0, false, false
	for i, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc || !roots[p.site(op.Block).root] { // of a thread beside it, as a loader of batches
			continue
		}
		line := at[p.Trace.Blocks[op.Block].Site]
		site := p.Trace.Blocks[op.Block].Site
		again := open && single[site] && site == p.Trace.Blocks[calls[len(calls)-1].blocks[0]].Site
		if again && loop[site] {
			looped, again = true, split
		}
		if open && (line == 0 || line == first && elsewhere || again) {
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
	return calls, looped, nil
}

// loops are files of PyTorch with modules that call others in a loop.
var loops = lazyregexp.New(`(^|/)torch/nn/modules/(container|transformer|rnn)\.py$`)

// repeats reports whether a loop of its function may repeat the line of a frame: any of a user's
// function but the first.
func repeats(f callstack.Frame) bool {
	if inTorch.MatchString(f.File) {
		return loops.MatchString(f.File)
	}
	return f.Python && (f.StartLine == 0 || f.Line > f.StartLine+1)
}

// output is what a call returns.
type output struct {
	block uint32
	also  bool // the call saves it too
}

// saved returns what a call saves for the backward pass, without its output: what is live after it
// and freed in the backward pass. The output is what the backward pass frees first, before it comes
// to the call, unless the forward pass frees some of it: then that was the output.
func (p *Program) saved(c call) (saved []uint32, out output) {
	s := p.passes[p.passAt(c.begin)]
	if s.backward < 0 {
		return nil, out
	}
	for _, b := range c.blocks {
		if end := p.until(b); end > c.end && end > s.backward && end < s.end {
			saved = append(saved, b)
		}
	}
	consumed := func(b uint32) bool { return p.until(b) > c.end && p.until(b) < s.backward && !p.site(b).cast } // autocast frees its copies when it ends
	if len(saved) == 0 || slices.ContainsFunc(c.blocks, consumed) {
		return saved, out
	}
	out.block = slices.MinFunc(saved, func(a, b uint32) int { return p.until(a) - p.until(b) })
	out.also = !p.freedByNext(c, out.block) && !freedByOther(p, out.block)
	return slices.DeleteFunc(saved, func(b uint32) bool { return b == out.block }), out
}

// ends returns when each saved block of a call would be freed if nothing saved it: after the
// operation that uses it.
func (p *Program) ends(c call, saved []uint32) map[uint32]int {
	order := slices.Clone(saved)
	slices.SortFunc(order, func(a, b uint32) int { return p.lives[a].Malloc - p.lives[b].Malloc })
	ends := map[uint32]int{}
	for i, use := range uses(p, order) {
		ends[order[i]] = c.end
		if use >= 0 {
			ends[order[i]] = min(c.end, p.mallocAfter(use))
		}
	}
	return ends
}

// consumed returns what was live before a call and is freed before it returns: its input, unless
// something else keeps that.
func (p *Program) consumed(c call) (blocks []uint32) {
	for _, op := range p.Trace.Ops[c.begin:c.end] {
		if !isFree(op.Kind) || op.Kind == allocsim.FreeCompleted {
			continue
		}
		if s := p.site(op.Block); p.lives[op.Block].Malloc < c.begin && !s.backward && !s.cast && s.role != loading && s.role != optimizer {
			blocks = append(blocks, op.Block)
		}
	}
	return blocks
}

// freedByNext reports whether the node of the backward pass that frees a block also frees what was
// saved after the call: then the node is not of the call.
func (p *Program) freedByNext(c call, block uint32) bool {
	free := p.until(block)
	later := func(i int) bool {
		b := p.Trace.Ops[i].Block
		return p.lives[b].Malloc >= c.end && !p.site(b).backward
	}
	for i := free - 1; i >= 0 && isFree(p.Trace.Ops[i].Kind); i-- {
		if later(i) {
			return true
		}
	}
	for i := free + 1; i < len(p.Trace.Ops) && isFree(p.Trace.Ops[i].Kind); i++ {
		if later(i) {
			return true
		}
	}
	return false
}

// freedByOther reports whether the node of the backward pass that frees a block belongs to another
// operator than the one that made it, as "ConvolutionBackward0" after a leaky_relu: then it is an
// input of the former. Nodes that save their result are left out: theirs may be in place.
func freedByOther(p *Program, block uint32) bool {
	node := freedBy(p, block)
	if node == "" || savesResult.MatchString(node) {
		return false
	}
	made, own := makes(p, block, node)
	return made && !own
}

// freedBy returns the node of the backward pass that frees a block, as site.node has it. "":
// unknown.
func freedBy(p *Program, block uint32) string {
	free := p.until(block)
	for i := free - 1; i >= max(0, free-256); i-- { // no node frees so many before
		if op := p.Trace.Ops[i]; op.Kind == allocsim.Malloc && !p.site(op.Block).reduces {
			return p.site(op.Block).node
		}
	}
	return ""
}

// makes reports whether an operator made a block, and whether it is the one of a node.
func makes(p *Program, block uint32, node string) (made, own bool) {
	for _, f := range p.site(block).stack {
		if after, ok := strings.CutPrefix(f.Function, "at::_ops::"); ok {
			name, _, _ := strings.Cut(after, "::")
			if made = true; isOperator(name, node) {
				return true, true
			}
		}
	}
	return made, false
}

// overload matches what follows the name of an operator, as "_Tensor" or "_dim_IntList".
var overload = lazyregexp.New(`^(_(dim|int|self|correction|[A-Z]\w*))+$`)

// isOperator reports whether a function of at::_ops, as "mul_Tensor", is the operator of a node.
func isOperator(name, node string) bool {
	node, _, _ = strings.Cut(node, "/")
	for i := range len(name) + 1 {
		if (i == len(name) || overload.MatchString(name[i:])) && strings.ReplaceAll(name[:i], "_", "") == node {
			return true
		}
	}
	return false
}

// recompute repeats a call before an operation. It stops with the last block that is saved; the
// others that are live then are freed.
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
			copies[op.Block] = e.again(op.Block, true)
			ops = append(ops, allocsim.Op{Kind: allocsim.Malloc, Block: copies[op.Block]})
		case op.Kind == allocsim.Free || op.Kind == allocsim.FreeRequested:
			ops = append(ops, allocsim.Op{Kind: allocsim.Free, Block: copies[op.Block]})
			delete(copies, op.Block)
		}
	}
	for _, b := range saved {
		e.replace(b, copies[b], before)
		delete(copies, b)
	}
	for _, b := range c.blocks {
		if again, live := copies[b]; live {
			ops = append(ops, allocsim.Op{Kind: allocsim.Free, Block: again})
		}
	}
	e.insert[before] = append(e.insert[before], ops...)
}

// weightCasts returns the copies of weights that autocast makes and keeps until it ends. They have
// half the size of a weight, and come last of the copies of an operation: input, weight, bias.
func (p *Program) weightCasts() map[uint32]bool {
	halves, found := map[uint64]bool{}, map[uint32]bool{}
	var row []uint32 // copies that follow each other
	end := func() {
		var last uint64
		for i := len(row) - 1; i >= max(0, len(row)-2); i-- {
			size := p.size(row[i])
			if !halves[size] || size <= last {
				break
			}
			found[row[i]], last = true, size
		}
		row = row[:0]
	}
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		s := p.site(op.Block)
		if s.role == loading {
			halves[p.size(op.Block)/2] = true
		}
		if !s.cast || len(row) > 0 && p.site(row[0]).line != s.line {
			end()
		}
		if s.cast {
			row = append(row, op.Block)
		}
	}
	end()
	return found
}
