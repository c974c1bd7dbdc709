// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"errors"
	"slices"
	"sort"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/lazyregexp"
)

// Code is a line or a function of a program. One of them is set.
type Code struct {
	Line     Line
	Function Function
}

// ParseCode reads FILE:LINE, or a Function.
func ParseCode(text string) Code {
	if line, ok := ParseLine(text); ok {
		return Code{Line: line}
	}
	return Code{Function: ParseFunction(text)}
}

func (c Code) String() string {
	if c.Line.Line > 0 {
		return c.Line.String()
	}
	return c.Function.String()
}

func (c Code) in(s *site) bool {
	if c.Line.Line > 0 {
		return c.Line.in(s.stack)
	}
	return c.Function.outermost(s.stack) >= 0
}

// at returns the index of the outermost frame of the code in a stack, -1 if there is none.
func (c Code) at(s *site) int {
	if c.Line.Line == 0 {
		return c.Function.outermost(s.stack)
	}
	for i := len(s.stack) - 1; i >= 0; i-- {
		if c.Line.in(s.stack[i : i+1]) {
			return i
		}
	}
	return -1
}

// Offload returns two programs in which what the code saves for the backward pass lies on the host
// until then, as with torch.autograd.graph.save_on_cpu around it: each saved tensor leaves the GPU
// after the operation that uses it, and the node of the backward pass that frees it brings it back
// first. A tensor that several operations save has a copy for each, which the node of each brings
// back. In the first program it leaves at once. In the second one, the user's function that made
// it keeps it in a variable until it returns, and each node that makes the gradient of a weight has
// a copy of that weight as well, which save_on_cpu moves like everything that is saved. A capture
// shows neither.
func (p *Program) Offload(code Code) (low, high *Program, done Evidence, err error) {
	below := map[uint32]bool{}
	found := false
	for n, s := range p.sites {
		if !s.backward && code.in(s) {
			below[n], found = true, true
		}
	}
	if !found {
		return nil, nil, done, errors.New("it allocates nothing in a recorded forward pass")
	}
	if err := once(p); err != nil {
		return nil, nil, done, err
	}
	soon, late := p.edit(), p.edit()
	weights, copies, own := p.weightCasts(), weightGradients(p), ownResults(p)
	calls := returns{p, userFrames(p), map[Function][]call{}}
	moves := map[string]bool{} // what is saved, wherever the code is called
	for _, s := range p.passes {
		if s.backward < 0 {
			continue
		}
		saved, moved := savedIn(p, s), map[uint32]bool{}
		used := uses(p, saved)
		for i, b := range saved {
			use := used[i]
			by := p.lives[b].Malloc
			if !own[b] {
				by = savedAt(p, b, max(use, by))
			}
			if !below[p.Trace.Blocks[p.Trace.Ops[by].Block].Site] {
				continue
			}
			leaves := s.backward
			if !weights[b] { // autocast keeps them until its end
				leaves = min(leaves, p.mallocAfter(max(use, p.lives[b].Malloc)))
			}
			returns := p.nodeOf(p.until(b))
			if returns <= leaves {
				continue
			}
			moved[b] = true
			moves[within(p, code.at(p.site(b)), b)] = true
			done.Bytes += p.size(b)
			soon.away(b, leaves, returns)
			late.away(b, max(leaves, calls.after(b, s.backward)), returns)
		}
		if len(moved) > 0 {
			done.Count++
			sizes := bySize(p, saved)
			for _, n := range nodes(p, s) {
				for _, b := range n.alsoSaved(p, sizes, copies) {
					if moved[b] {
						soon.beside(b, n.begin, applied(p, n.frees))
						late.beside(b, n.begin, applied(p, n.frees))
					}
				}
			}
			for i := s.backward; i < s.end; i++ {
				if op := p.Trace.Ops[i]; op.Kind == allocsim.Malloc && copies[op.Block] {
					late.beside(op.Block, p.nodeOf(i+1), p.mallocAfter(i))
				}
			}
		}
	}
	if done.Count == 0 {
		return nil, nil, done, errors.New("it saves nothing for a backward pass that was recorded")
	}
	for _, s := range p.passes { // graphs that are dropped: their calls save the same
		var dropped []uint32
		for _, op := range p.Trace.Ops[s.begin:max(s.backward, s.begin)] {
			b := op.Block
			if op.Kind == allocsim.Malloc && below[p.Trace.Blocks[b].Site] && p.until(b) < s.backward && p.until(b) > calls.after(b, s.backward) && moves[within(p, code.at(p.site(b)), b)] {
				dropped = append(dropped, b)
			}
		}
		together := map[int32]int{} // a graph frees all of its blocks at once, a variable its own
		for _, b := range dropped {
			together[p.node(b)]++
		}
		dropped = slices.DeleteFunc(dropped, func(b uint32) bool { return together[p.node(b)] < 2 })
		for i, use := range uses(p, dropped) {
			b := dropped[i]
			leaves := p.mallocAfter(max(use, p.lives[b].Malloc))
			if after := max(leaves, calls.after(b, s.backward)); leaves < p.until(b) && after < p.until(b) {
				soon.free(b, leaves)
				late.free(b, after)
			}
		}
	}
	return soon.done(), late.done(), done, nil
}

// savedAt returns the Malloc of the operation that saves a block: the first one, up to a last one,
// of the operator whose node frees it, or the last one. What follows at the line that made the
// block may be the rest of the operation that made it.
func savedAt(p *Program, b uint32, last int) int {
	node, made := freedBy(p, b), p.site(b).line
	for n := p.mallocAfter(p.lives[b].Malloc); n < last && node != ""; n = p.mallocAfter(n) {
		_, is := makes(p, p.Trace.Ops[n].Block, node)
		if rest := is && p.site(p.Trace.Ops[n].Block).line == made; is && !rest {
			return n
		} else if !rest {
			made.Line = -1
		}
	}
	return last
}

// ownResults returns the blocks that only the operators that made them save: the node that frees
// them is theirs, and needs its result, or they are no output, as the indices of a pool.
func ownResults(p *Program) map[uint32]bool {
	own := map[uint32]bool{}
	eachResult(p, func(b, output uint32) {
		node := freedBy(p, b)
		if b == output && !savesResult.MatchString(node) && !savesBoth.MatchString(node) || b != output && p.site(b).operation == plain {
			return
		}
		_, own[b] = makes(p, b, node)
	})
	return own
}

// away frees a block before one operation, and allocates it again before another.
func (e *edit) away(b uint32, leaves, returns int) {
	e.early[leaves] = append(e.early[leaves], b)
	n := e.again(b, true)
	e.replace(b, n, returns)
	e.insert[returns] = append(e.insert[returns], allocsim.Op{Kind: allocsim.Malloc, Block: n})
}

// beside allocates one more block of a block's size between two operations.
func (e *edit) beside(b uint32, from, to int) {
	n := e.again(b, true)
	e.insert[from] = append(e.insert[from], allocsim.Op{Kind: allocsim.Malloc, Block: n})
	e.early[to] = append(e.early[to], n)
}

// savedIn returns what a pass saves for its backward pass, in the order of allocation: what is live
// when that begins, and is freed in it.
func savedIn(p *Program, s pass) (saved []uint32) {
	for _, op := range p.Trace.Ops[s.begin:s.backward] {
		if op.Kind != allocsim.Malloc {
			continue
		}
		if at := p.site(op.Block); !at.workspace && !at.backward && at.role != loading && at.role != optimizer && p.isSaved(op.Block, s) {
			saved = append(saved, op.Block)
		}
	}
	return saved
}

// isSaved reports whether the backward pass of the pass in which a block was allocated frees it.
func (p *Program) isSaved(b uint32, s pass) bool {
	return s.backward > p.lives[b].Malloc && p.until(b) > s.backward && p.until(b) < s.end
}

// forBackward reports whether a module saves a block for the backward pass.
func (p *Program) forBackward(b uint32) bool {
	return p.site(b).role == forward && p.isSaved(b, p.passes[p.passAt(p.lives[b].Malloc)])
}

// uses returns for each of some saved blocks, in the order of allocation, the Malloc of the
// operation that uses it, or -1: the next one that the backward pass frees before it or with it.
// The backward pass goes through the operations in reverse order, so that block is saved by the
// same operation or by an earlier one.
func uses(p *Program, saved []uint32) []int {
	uses := make([]int, len(saved))
	var open []int // indices of which no use was found yet, each of a later node than the one before
	for i, b := range saved {
		uses[i] = -1
		for len(open) > 0 && p.node(b) <= p.node(saved[open[len(open)-1]]) {
			uses[open[len(open)-1]] = p.lives[b].Malloc
			open = open[:len(open)-1]
		}
		open = append(open, i)
	}
	return uses
}

// inTorch matches files of PyTorch, whose functions return what they make to the user's.
var inTorch = lazyregexp.New(`(^|/)torch/`)

// userFrames returns the user's innermost function of each site.
func userFrames(p *Program) map[uint32]Function {
	of := map[uint32]Function{}
	for n, s := range p.sites {
		for i := range s.stack {
			if f := &s.stack[i]; f.Python && !inTorch.MatchString(f.File) {
				of[n] = Function{f.File, f.Function}
				break
			}
		}
	}
	return of
}

// mostFunctions bounds the functions whose calls are found, each in a pass over the trace.
const mostFunctions = 64

// returns finds where functions return.
type returns struct {
	*Program
	frames map[uint32]Function // by site
	calls  map[Function][]call
}

// after returns the first Malloc, up to a limit, after the call of the user's function that made a
// block.
func (r *returns) after(b uint32, limit int) int {
	from := r.lives[b].Malloc
	f, ok := r.frames[r.Trace.Blocks[b].Site]
	if !ok {
		return min(limit, r.mallocAfter(from))
	}
	calls, known := r.calls[f]
	if !known && len(r.calls) < mostFunctions {
		calls, _, _ = r.Program.calls(f, true)
		r.calls[f] = calls
	}
	i := sort.Search(len(calls), func(i int) bool { return calls[i].end > from })
	if i == len(calls) {
		return limit
	}
	return min(limit, calls[i].end)
}

// weightGradients returns the blocks of backward passes that have the size of a weight: its
// gradients are among them.
func weightGradients(p *Program) map[uint32]bool {
	weights, found := map[uint64]bool{}, map[uint32]bool{}
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Malloc {
			continue
		}
		switch s := p.site(op.Block); {
		case s.role == loading && p.size(op.Block) >= noticeable:
			weights[p.size(op.Block)] = true
		case s.backward && s.role != forward && weights[p.size(op.Block)]:
			found[op.Block] = true
		}
	}
	return found
}
