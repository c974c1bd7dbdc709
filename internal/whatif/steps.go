// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// inOptimizer reports whether a stack is below the step of an optimizer of PyTorch.
func inOptimizer(stack []callstack.Frame) bool {
	for i := range stack {
		f := &stack[i]
		if f.Python && f.Function[strings.LastIndexByte(f.Function, '.')+1:] == "step" && strings.HasSuffix(path.Dir(f.File), "torch/optim") {
			return true
		}
	}
	return false
}

// markSteps adds the ends of steps to a trace: each is after what an optimizer allocated, and freed
// of that, before something else was allocated. Frees have no stack in a capture.
func markSteps(t *allocsim.Trace, optimizer func(site uint32) bool) {
	known := map[uint32]bool{}
	is := func(block uint32) bool {
		site := t.Blocks[block].Site
		in, ok := known[site]
		if !ok {
			in = optimizer(site)
			known[site] = in
		}
		return in
	}
	var ends []int // index of the last operation of a step
	last := -1
	inside := map[uint32]bool{} // blocks of the step's optimizer
	for i, op := range t.Ops {
		switch op.Kind {
		case allocsim.Malloc:
			if is(op.Block) {
				last = i
				inside[op.Block] = true
			} else if last >= 0 {
				ends = append(ends, last)
				last = -1
				clear(inside)
			}
		case allocsim.Free, allocsim.FreeRequested:
			if last >= 0 && inside[op.Block] {
				last = i
			}
		}
	}
	if last >= 0 {
		ends = append(ends, last)
	}
	insertSteps(t, ends)
}

// insertSteps inserts a Step after each of the operations.
func insertSteps(t *allocsim.Trace, ends []int) {
	ops := make([]allocsim.Op, 0, len(t.Ops)+len(ends))
	moved := t.Reserved
	for i, op := range t.Ops {
		for len(moved) > 0 && moved[0].Op <= i {
			moved[0].Op += len(ops) - i
			moved = moved[1:]
		}
		ops = append(ops, op)
		if len(ends) > 0 && ends[0] == i {
			ops = append(ops, allocsim.Op{Time: op.Time, Kind: allocsim.Step})
			ends = ends[1:]
		}
	}
	t.Ops = ops
}
