// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"math"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// OptimizerEnds returns when the optimizer of each step of a training was done: the time of the
// last that it allocated, or freed of that. Play applies the events of one process, of which the
// stack of each tensor is known. It returns nil where no optimizer shows the steps.
func OptimizerEnds(stacks callstack.Stacks, play func(apply func(*ledger.Event))) (ends []uint64) {
	f := newFinder(stacks, nil, limits{steps: math.MaxInt, blocks: math.MaxInt, ended: 1})
	f.all = true
	play(f.Apply)
	for _, s := range f.Steps() {
		if s.By != Optimizer {
			return nil
		}
		for i := range s.List {
			ends = append(ends, s.List[i].Done)
		}
	}
	return ends
}
