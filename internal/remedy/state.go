// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"cmp"
	"errors"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// What 8-bit optimizers keep, after bitsandbytes: for each block of 256 elements a maximum of 4
// bytes, and states of tensors below 4096 elements in 4 bytes.
const (
	stateBlock   = 256
	smallState   = 4096
	maximum      = 4
	stateElement = 4
)

// EightBit returns the program whose optimizer keeps its state in 8 bits and needs nothing else for
// a step, as the optimizers of bitsandbytes.
func (p *Program) EightBit() (*Program, Evidence, error) {
	state, done, err := p.state()
	if err != nil {
		return nil, done, err
	}
	e := p.resize(func(b uint32) uint64 {
		switch elements := p.size(b) / p.Element; {
		case !state[b] && p.ofStep(b):
			return 0
		case !state[b]:
			return p.size(b)
		case elements < smallState:
			return elements * stateElement
		default:
			return elements
		}
	}).edit()
	for i, op := range e.Trace.Ops {
		if op.Kind != allocsim.Malloc || !state[op.Block] {
			continue
		}
		done.After += e.size(op.Block)
		if elements := p.size(op.Block) / p.Element; elements >= smallState {
			b := e.again(op.Block, false)
			e.blocks[b].Requested = (elements + stateBlock - 1) / stateBlock * maximum
			e.insert[i+1] = append(e.insert[i+1], allocsim.Op{Kind: allocsim.Malloc, Block: b})
			done.After += e.blocks[b].Requested
		}
	}
	if done.After >= done.Bytes {
		return nil, done, errors.New("the optimizer's state would not be smaller in 8 bits")
	}
	return e.done(), done, nil
}

// Shard returns the program of the rank that has most of an optimizer's state, where it is divided
// between ranks by tensors, as ZeroRedundancyOptimizer does.
func (p *Program) Shard(ranks int) (*Program, Evidence, error) {
	state, done, err := p.state()
	if err != nil {
		return nil, done, err
	}
	if ranks < 2 {
		return nil, done, errors.New("a state is divided between 2 ranks at least")
	}
	mine := shareOf(p, state, ranks)
	lists := listsOf(p, state)
	changed := p.resize(func(b uint32) uint64 {
		switch {
		case state[b] && !mine[b]:
			return 0
		case p.ofStep(b) && !state[b] && !lists.has(b, mine):
			return 0
		}
		return p.size(b)
	})
	for b := range mine {
		done.After += p.size(b)
	}
	return changed, done, nil
}

// state returns the blocks that an optimizer keeps.
func (p *Program) state() (map[uint32]bool, Evidence, error) {
	state, done := map[uint32]bool{}, Evidence{}
	for _, op := range p.Trace.Ops {
		b := op.Block
		if op.Kind != allocsim.Malloc || !p.ofStep(b) {
			continue
		}
		n := p.passAt(p.lives[b].Malloc)
		if n < len(p.passes)-1 && (p.kept(b) || p.until(b) > p.stepEnd(n+1)) {
			state[b] = true
			done.Count++
			done.Bytes += p.size(b)
		}
	}
	if len(state) == 0 {
		return nil, done, errors.New("no optimizer of torch.optim keeps memory over two steps of this trace")
	}
	return state, done, nil
}

// ofStep reports whether an optimizer allocates a block.
func (p *Program) ofStep(b uint32) bool {
	s := p.site(b)
	return s.stepping && !s.backward && !s.workspace
}

// shareOf returns the state of the rank that gets the first tensor: each tensor, the largest first,
// goes to the rank that has least. The states of one weight have one size and are allocated one
// after another.
func shareOf(p *Program, state map[uint32]bool, ranks int) map[uint32]bool {
	mine := map[uint32]bool{}
	for _, one := range optimizersOf(p, state) {
		per := statesPerWeight(p, one)
		groups := slices.Collect(slices.Chunk(per.order, per.states))
		slices.SortStableFunc(groups, func(a, b []uint32) int { return cmp.Compare(p.size(b[0]), p.size(a[0])) })
		sums := make([]uint64, ranks)
		for _, g := range groups {
			least := slices.Index(sums, slices.Min(sums))
			for _, b := range g {
				sums[least] += p.size(b)
				if least == 0 {
					mine[b] = true
				}
			}
		}
	}
	return mine
}

// optimizersOf divides the state by the line that calls step().
func optimizersOf(p *Program, state map[uint32]bool) map[Line]map[uint32]bool {
	all := map[Line]map[uint32]bool{}
	for b := range state {
		at := p.site(b).step
		if all[at] == nil {
			all[at] = map[uint32]bool{}
		}
		all[at][b] = true
	}
	return all
}

type states struct {
	order  []uint32 // in the order of allocation
	states int      // of each weight
}

// statesPerWeight finds how many states each weight has: the most, up to 3, for which runs of equal
// sizes have a multiple of this length.
func statesPerWeight(p *Program, state map[uint32]bool) states {
	var order []uint32
	for _, op := range p.Trace.Ops {
		if op.Kind == allocsim.Malloc && state[op.Block] {
			order = append(order, op.Block)
		}
	}
	fits := func(n int) bool {
		for run := 0; run < len(order); {
			end := run + 1
			for end < len(order) && p.size(order[end]) == p.size(order[run]) {
				end++
			}
			if (end-run)%n != 0 {
				return false
			}
			run = end
		}
		return true
	}
	for n := 3; n > 1; n-- {
		if fits(n) {
			return states{order, n}
		}
	}
	return states{order, 1}
}

// lists are temporary lists of tensors that an optimizer allocates for all weights at once: in each
// step, blocks of the sizes of the weights in their order.
type lists struct {
	weight map[uint32]uint32 // block of a list: the first state of its weight
}

func listsOf(p *Program, state map[uint32]bool) lists {
	l := lists{map[uint32]uint32{}}
	weights, next := map[Line][][]uint32{}, map[Line]int{}
	for at, one := range optimizersOf(p, state) {
		per := statesPerWeight(p, one)
		weights[at] = slices.Collect(slices.Chunk(per.order, per.states))
	}
	for _, op := range p.Trace.Ops {
		b := op.Block
		if op.Kind != allocsim.Malloc || state[b] || !p.ofStep(b) {
			continue
		}
		at := p.site(b).step
		for range weights[at] {
			w := weights[at][next[at]%len(weights[at])][0]
			next[at]++
			if p.size(w) == p.size(b) {
				l.weight[b] = w
				break
			}
		}
	}
	return l
}

// has reports whether a block belongs to one of some weights. What belongs to no weight, such as a
// list of addresses, does.
func (l lists) has(b uint32, mine map[uint32]bool) bool {
	w, ok := l.weight[b]
	return !ok || mine[w]
}
