// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/allocsim"
)

// kindsOf returns the operations of a program: m for an allocation, f for a free, | for the end of
// a step.
func kindsOf(p *Program) string {
	var kinds strings.Builder
	for _, op := range p.Trace.Ops {
		kinds.WriteString([...]string{allocsim.Malloc: "m", allocsim.Free: "f", allocsim.Step: "|"}[op.Kind])
	}
	return kinds.String()
}

// TestStepsEndWithWhatTheOptimizerFrees: before gradients are dropped, also where a later free is
// of the optimizer's.
func TestStepsEndWithWhatTheOptimizerFrees(t *testing.T) {
	const training = "a 1 first; g 1 engine; -a; s 1 state; l 1 list; -l; -g"
	p, _ := programOf(t, training+"\n"+strings.ReplaceAll(training, "s 1 state; ", "")+"; e 1 first; g 1 engine; -e; l 1 list; -l; b 1 batch; -s; -g")
	if got, want := kindsOf(p), "mmfmmf|f"+"mmfmf|f"+"mmfmf|mff"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A checkpoint of what was reserved stays at its operation.
	trace := *p.Trace
	trace.Ops, trace.Reserved = nil, nil
	for _, op := range p.Trace.Ops {
		if op.Kind != allocsim.Step {
			trace.Reserved = append(trace.Reserved, allocsim.Reserved{Op: len(trace.Ops), Bytes: uint64(len(trace.Ops))})
			trace.Ops = append(trace.Ops, op)
		}
	}
	insertSteps(&trace, []uint64{5, 11})
	for _, r := range trace.Reserved {
		want := int(r.Bytes)
		if want > 5 {
			want++
		}
		if r.Bytes > 11 {
			want++
		}
		if r.Op != want {
			t.Errorf("what was reserved after operation %d is at %d", r.Bytes, r.Op)
		}
	}
}

// Momentum is allocated in the first step only; without native frames no backward pass shows that.
func TestStepsAreUnknownWhereTheOptimizerShowsFew(t *testing.T) {
	pass := "a 1 first; l 1 list; -l; -a\n"
	silent := "a 1 first; -a\n"
	for text, want := range map[string]int{
		pass + pass + pass: 3,
		pass + pass:        0,
		pass + pass + pass + strings.Repeat(silent, 20): 0,
		"a 1 first; -a\n" + pass + silent + pass + pass: 3,
		silent + silent: 0,
		"":              0,
	} {
		p, _ := programOf(t, text)
		if got := strings.Count(kindsOf(p), "|"); got != want {
			t.Errorf("%q: %d steps, want %d", text, got, want)
		}
	}
}

// Optimizers that take turns share a step, and scaling or clipping alone is none.
func TestTurnsOfOptimizersAreOneStep(t *testing.T) {
	scripted["other"] = append(stepOf("_multi_tensor_adamw")[:4:4], py("/app/train.py", "main", 99))
	defer delete(scripted, "other")
	turn := "a 1 first; g 1 engine; -a; l 1 list; -l; -g; a 1 first; g 1 engine; -a; l 1 other; -l; -g\n"
	p, _ := programOf(t, strings.Repeat(turn, 4))
	if got := strings.Count(kindsOf(p), "|"); got != 4 {
		t.Errorf("%d steps, want 4: %s", got, kindsOf(p))
	}
}
