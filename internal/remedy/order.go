// SPDX-License-Identifier: Apache-2.0

package remedy

import "github.com/vramprof/vramprof/internal/allocsim"

// order is where allocations lie among the operations of a trace.
type order struct {
	mallocs []int32 // indices of all
	before  []int32 // by operation, and at the end: how many are before it
	begins  []int32 // by operation, and at the end: where the node of the backward pass begins that ends before it
}

func orderOf(p *Program) order {
	n := len(p.Trace.Ops)
	o := order{before: make([]int32, n+1), begins: make([]int32, n+1)}
	run := int32(0) // where the allocations of a backward pass begin that end here
	for i, op := range p.Trace.Ops {
		allocates := op.Kind == allocsim.Malloc
		if !allocates || !p.site(op.Block).backward {
			run = int32(i + 1)
		}
		if o.begins[i+1] = run; isFree(op.Kind) {
			o.begins[i+1] = o.begins[i]
		}
		o.before[i+1] = o.before[i]
		if allocates {
			o.before[i+1]++
			o.mallocs = append(o.mallocs, int32(i))
		}
	}
	return o
}

// mallocAfter returns the first Malloc after an operation, or the end of the trace.
func (o *order) mallocAfter(op int) int {
	end := len(o.before) - 1
	if op >= end {
		return end
	}
	if n := int(o.before[op+1]); n < len(o.mallocs) {
		return int(o.mallocs[n])
	}
	return end
}

// nodeOf returns where the node of the backward pass begins that frees a block: after the operation
// before the allocations that precede the free.
func (o *order) nodeOf(free int) int { return int(o.begins[free]) }

// node returns the number of the node that frees a block: frees without an allocation in between
// are of one node.
func (p *Program) node(b uint32) int32 { return p.before[p.until(b)] }

// applied returns where the node of the backward pass that frees a block has done its work: before
// the sums of its gradients, after which the engine frees what the node saved. Only the node's own
// work holds what PyTorch's hooks bring back (torch/csrc/autograd/engine.cpp, call_function).
func applied(p *Program, free int) int {
	at := free
	for n := int(p.before[free]) - 1; n >= 0; n-- {
		op := int(p.mallocs[n])
		if !p.site(p.Trace.Ops[op].Block).reduces {
			break
		}
		at = op
	}
	return at
}
