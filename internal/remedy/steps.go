// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// MarkSteps adds the ends of steps to a trace without any, where an optimizer shows them.
// Block.Site numbers the stack traces.
func MarkSteps(t *allocsim.Trace, stacks callstack.Stacks) {
	ends := steps.OptimizerEnds(bySite{stacks}, func(apply func(*ledger.Event)) {
		e := ledger.Event{Kind: ledger.Tensor, Space: ledger.Blocks, PID: 1}
		for i, op := range t.Ops {
			switch op.Kind {
			case allocsim.Malloc:
				e.Op = ledger.Alloc
			case allocsim.Free, allocsim.FreeRequested:
				e.Op = ledger.Free
			default:
				continue
			}
			b := &t.Blocks[op.Block]
			e.Time, e.Address, e.Size, e.Stack = uint64(i), uint64(op.Block)+1, b.Requested, uint64(b.Site)+1
			apply(&e)
		}
	})
	insertSteps(t, ends)
}

// bySite has stacks by numbers from 1 on.
type bySite struct{ callstack.Stacks }

// Stack implements callstack.Stacks.
func (s bySite) Stack(id uint64) []callstack.Frame { return s.Stacks.Stack(id - 1) }

// insertSteps inserts a Step after each of the operations.
func insertSteps(t *allocsim.Trace, ends []uint64) {
	ops := make([]allocsim.Op, 0, len(t.Ops)+len(ends))
	moved := t.Reserved
	for i, op := range t.Ops {
		for len(moved) > 0 && moved[0].Op <= i {
			moved[0].Op += len(ops) - i
			moved = moved[1:]
		}
		ops = append(ops, op)
		if len(ends) > 0 && ends[0] == uint64(i) {
			ops = append(ops, allocsim.Op{Time: op.Time, Kind: allocsim.Step})
			ends = ends[1:]
		}
	}
	t.Ops = ops
}
