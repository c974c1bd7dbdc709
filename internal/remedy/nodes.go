// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"regexp"
	"slices"
	"sort"

	"github.com/vramprof/vramprof/internal/allocsim"
)

var (
	// savesResult matches nodes, as site.node has them, of operators that save their result, at
	// least in place: by derivatives.yaml of PyTorch 2.6. In place, hardtanh, threshold, clamp and
	// the like save a copy of their input.
	savesResult = regexp.MustCompile(`^(relu|sigmoid|tan|tanh|exp|exp2|expm1|sqrt|rsqrt|reciprocal|softmax|safesoftmax|logsoftmax|c?elu|leakyrelu)$`)

	// savesInput matches nodes of operators that save an input, which has the size of its gradient;
	// products those that save two, each for the gradient of the other.
	savesInput = regexp.MustCompile(`^((native|cudnn|miopen)(layer|group|batch)norm|gelu|silu|mish|hardswish|softplus|logsigmoid|amax|amin|maxpool\dd\w*|pow|abs|log|log1p|log2|log10|erf|sin|cos|hardtanh|hardsigmoid|hardshrink|softshrink|threshold|clamp\w*)$`)
	products   = regexp.MustCompile(`^(mm|addmm|bmm|baddbmm|convolution)$`)
)

// node is what a node of a backward pass allocates, but for sums of what it has made.
type node struct {
	name   string
	blocks []uint32
	begin  int // its first Malloc
	last   int // its last one
	frees  int // the first Malloc after what it frees in the end
}

// nodes returns the nodes of a pass that have a name and allocate. In one node, no stack trace
// allocates twice.
func nodes(p *Program, s pass) (list []node) {
	open := false
	seen := map[uint32]bool{}
	for i := s.backward; i < s.end; i++ {
		op := p.Trace.Ops[i]
		if op.Kind != allocsim.Malloc {
			continue
		}
		at := p.site(op.Block)
		if at.reduces && len(list) > 0 {
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
			open = true
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
	single := savesInput.MatchString(n.name)
	if !single && !products.MatchString(n.name) {
		return nil
	}
	made := 0
	needs := map[uint64]int{} // inputs by size
	for _, b := range n.blocks {
		if p.until(b) < n.frees {
			continue
		}
		if made++; !weights[b] {
			needs[p.size(b)]++
		}
	}
	if !single && made < 2 { // one gradient needs only the other factor, as a weight that is frozen
		return nil
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
