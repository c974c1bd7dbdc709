// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"slices"
	"sort"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/lazyregexp"
)

// What operators save, by derivatives.yaml of PyTorch 2.6: names of nodes, as site.node has them.
// TestOperatorsSaveWhatTheTablesSay compares these with PyTorch.
var (
	// savesResult are nodes of operators that save their result and no input, at least in place. In
	// place, hardtanh, threshold, clamp and the like save a copy of their input.
	savesResult = lazyregexp.New(`^(relu|sigmoid|tan|tanh|exp|exp2|expm1|sqrt|rsqrt|reciprocal|softmax|safesoftmax|logsoftmax|(c?elu|leakyrelu)/1)$`)

	// savesBoth are those that save an input and their result.
	savesBoth = lazyregexp.New(`^(amax|amin|linalgvectornorm|logsumexp|cumprod)$`)

	// savesInput are those that save an input, which has the size of its gradient.
	savesInput = lazyregexp.New(`^((native|cudnn|miopen)(layer|group|batch)norm|maxpool\dd\w*|(adaptive)?avgpool\dd|glu|gelu|silu|mish|c?elu|leakyrelu|hardswish|softplus|logsigmoid|pow|abs|log|log1p|log2|log10|erf|sin|cos|` +
		`hardtanh|hardsigmoid|hardshrink|softshrink|threshold(/1)?|clamp\w*(/1)?)$`)

	// savesFactors are those that save two inputs, each for the gradient of the other, or of both.
	savesFactors = lazyregexp.New(`^(mm|addmm|bmm|baddbmm|convolution|mul|div|addcmul|prelukernel|pow/1)$`)
)

// node is what a node of a backward pass allocates, but for sums of what it has made.
type node struct {
	name   string
	blocks []uint32
	begin  int      // its first Malloc
	last   int      // its last one
	frees  int      // the first Malloc after what it frees in the end
	sums   []uint32 // gradients of inputs that were expanded, in the place of the large ones
}

// nodes returns the nodes of a pass that have a name and allocate. In one node, no stack trace
// allocates twice.
func nodes(p *Program, s pass) (list []node) {
	open, released := false, false
	seen := map[uint32]bool{}
	for i := s.backward; i < s.end; i++ {
		op := p.Trace.Ops[i]
		at := p.site(op.Block)
		if op.Kind != allocsim.Malloc {
			released = released || isFree(op.Kind) && !at.backward // after that, another node sums
			continue
		}
		if at.reduces && len(list) > 0 {
			if n := &list[len(list)-1]; n.frees == 0 && !released && (len(n.sums) == 0 || p.Trace.Blocks[n.sums[0]].Site == p.Trace.Blocks[op.Block].Site) {
				n.sums = append(n.sums, op.Block) // of another site are buffers of the sum
			}
			open = false
			continue
		}
		if n := len(list) - 1; n >= 0 && list[n].frees == 0 && (!open || at.node != list[n].name || seen[p.Trace.Blocks[op.Block].Site]) {
			list[n].frees, open = i, false
		}
		if at.node == "" || !at.backward {
			continue
		}
		if !open {
			list = append(list, node{name: at.node, begin: i})
			clear(seen)
			open, released = true, false
		}
		n := &list[len(list)-1]
		n.blocks, n.last = append(n.blocks, op.Block), i
		seen[p.Trace.Blocks[op.Block].Site] = true
	}
	if n := len(list) - 1; n >= 0 && list[n].frees == 0 {
		list[n].frees = s.end
	}
	return list
}

// bySize lists saved blocks of each size in the order in which the backward pass frees them.
func bySize(p *Program, saved []uint32) map[uint64][]uint32 {
	lists := map[uint64][]uint32{}
	for _, b := range saved {
		lists[p.size(b)] = append(lists[p.size(b)], b)
	}
	for _, list := range lists {
		slices.SortFunc(list, func(a, b uint32) int { return p.until(a) - p.until(b) })
	}
	return lists
}

// alsoSaved returns blocks of the sizes of what a node needs and does not free: an operator that is
// earlier in the forward pass saves it too.
func (n *node) alsoSaved(p *Program, saved map[uint64][]uint32, weights map[uint32]bool) (list []uint32) {
	single := savesInput.MatchString(n.name) || savesBoth.MatchString(n.name)
	if !single && !savesFactors.MatchString(n.name) {
		return nil
	}
	made, summed := 0, 0
	needs := map[uint64]int{} // inputs by size
	need := func(b uint32) {
		if !weights[b] {
			needs[p.size(b)]++
		}
	}
	for _, b := range n.blocks {
		switch free := p.until(b); {
		case free >= n.frees:
			made++
			need(b)
		case len(n.sums) > summed && free > p.lives[n.sums[0]].Malloc: // a sum takes its place
			made++
			summed++
		}
	}
	if !single && made < 2 { // one gradient needs only the other factor, as a weight that is frozen
		return nil
	}
	for _, b := range n.sums[len(n.sums)-summed:] {
		need(b)
	}
	for size, count := range needs {
		of := saved[size]
		after := func(op int) int {
			return sort.Search(len(of), func(i int) bool { return p.until(of[i]) >= op })
		}
		later := after(n.frees)
		for own := later - after(n.last); own < count && later < len(of); own++ {
			list = append(list, of[later])
		}
	}
	return list
}
