// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
)

const tooDeep = "the stack is deeper than the unwinder can walk"

func TestTooDeepStacksAreMarkedAndCounted(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	p := record(t, env, dir.Program("bench_c"), "cudart", "1200", "50")
	var marked, all int64
	for _, s := range p.Sample {
		all += s.Value[0]
		stack := rootFirst(s)
		if stack[0] == "[truncated: "+tooDeep+"]" && slices.Contains(stack, "cudaMalloc") && len(stack) > 100 {
			marked += s.Value[0]
		}
	}
	if all < 50 || marked != all {
		t.Errorf("%d of %d allocations have a deep stack marked as truncated, want all", marked, all)
	}
	r := leaks(t, env, dir.Program("bench_c"), "cudart", "1200", "50")
	if r.Losses.Truncated[tooDeep] < 50 || len(r.Losses.Truncated) != 1 {
		t.Errorf("truncated stacks: %v, want at least 50 that are too deep and no others", r.Losses.Truncated)
	}
}
