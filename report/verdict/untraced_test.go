// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestTensorsThatAreNotTracedHaveNoVerdict: while the probe is away nothing is seen to be freed, so
// that each line seems to keep what it had. After it, a line whose tensors may have lost their
// stacks is not called harmless.
func TestTensorsThatAreNotTracedHaveNoVerdict(t *testing.T) {
	judged := func(kept bool, change func(x *ledger.Tensors)) Verdict {
		p := newProgram(1e7, 1)
		p.kind = ledger.Tensor
		p.train(steps, func(int) {
			if kept {
				step(p, lineLinear)
			} else {
				step(p)
			}
		})
		s := p.snapshot()
		change(s.TensorsOn(0, 0))
		for i, v := range Judge(s, trainStacks) {
			if s.Sites[i].Stack == lineLinear {
				return v
			}
		}
		t.Fatal("no such line")
		return Verdict{}
	}
	none := func(v Verdict) bool { return v.Class == Steady && strings.HasPrefix(v.Evidence, "no verdict: ") }
	if v := judged(true, func(*ledger.Tensors) {}); v.Class != Leaking {
		t.Fatalf("without a pause: %+v", v)
	}
	if v := judged(true, func(x *ledger.Tensors) { x.Open = true }); !none(v) {
		t.Errorf("in a pause: %+v", v)
	}
	if v := judged(true, func(x *ledger.Tensors) { x.Untraced = 1 << 20 }); v.Class != Leaking {
		t.Errorf("what has kept its stacks shows a leak: %+v", v)
	}
	if v := judged(false, func(x *ledger.Tensors) { x.Untraced = 1 << 20 }); !none(v) {
		t.Errorf("a line that may have lost tensors: %+v", v)
	}
	if v := judged(false, func(*ledger.Tensors) {}); none(v) {
		t.Errorf("without a pause: %+v", v)
	}
}

// TestALineThatLostTensorsInAPauseIsJudgedAsIfTracingHadBegunThen: its fall is none of the
// program's. One that did not grow since is no leak.
func TestALineThatLostTensorsInAPauseIsJudgedAsIfTracingHadBegunThen(t *testing.T) {
	judged := func(leaks, paused bool) Verdict {
		p := newProgram(1e8, 1)
		p.kind = ledger.Tensor
		var kept []uint64
		at := uint64(0)
		p.train(steps, func(i int) {
			if leaks || i < steps/2 {
				kept = append(kept, p.alloc(lineLinear, 1<<20))
			}
			if i == steps/2 {
				for _, a := range kept {
					p.free(a) // as the ledger ends what may have been freed
				}
				at = p.now() - start
			}
			step(p)
		})
		s := p.snapshot()
		if paused {
			s.TensorsOn(0, 0).LostAt = at
		}
		for i, v := range Judge(s, trainStacks) {
			if s.Sites[i].Stack == lineLinear {
				return v
			}
		}
		t.Fatal("no such line")
		return Verdict{}
	}
	if v := judged(true, false); v.Class == Leaking {
		t.Errorf("it fell: %+v", v)
	}
	if v := judged(true, true); v.Class != Leaking {
		t.Errorf("after a pause: %+v", v)
	}
	if v := judged(false, true); v.Class >= Growing {
		t.Errorf("it did not grow after a pause: %+v", v)
	}
}
