// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/realtorch"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/pauses"
)

// pausedJob is testdata/realtorch/pauses.py through pauses of tracing.
type pausedJob struct {
	*torchMachine
	t      *testing.T
	job    *realtorch.Job
	keeper *pauses.Keeper
}

// lines returns the live bytes by line of pauses.py, and of all tensors without a stack or with one
// that shows no such line, which it logs.
func (p *pausedJob) lines(s *ledger.Snapshot, process int) map[string]uint64 {
	of := map[string]uint64{}
	for i := range s.Sites {
		x := &s.Sites[i]
		if x.Process != process || x.Kind != ledger.Tensor || x.LiveBytes == 0 {
			continue
		}
		name := "?"
		for _, f := range p.Stack(x.Stack) {
			at := f.Function[strings.LastIndexByte(f.Function, '.')+1:]
			if name == "?" && strings.HasSuffix(f.File, "pauses.py") && slices.Contains([]string{"small", "large", "reused"}, at) {
				name = at
			}
		}
		if name == "?" && x.Stack != 0 {
			p.t.Logf("a stack of %d bytes shows no line: %+v", x.LiveBytes, p.Stack(x.Stack))
		}
		of[name] += x.LiveBytes
	}
	return of
}

// check compares the books with the job's own figures, and the lines with what is wanted.
func (p *pausedJob) check(point realtorch.Point, want map[string]uint64, untraced uint64) {
	p.t.Helper()
	c := p.torchMachine.check(p.t, point)
	x, d := c.tensors(0), point.Devices[0]
	if x.Allocated != d.Allocated || x.Reserved != d.Reserved || x.LiveBytes+x.Older != d.Allocated || x.Untraced != untraced || x.Older != untraced {
		p.t.Errorf("%s: %+v; PyTorch has %d bytes allocated and %d reserved; want %d not traced and nothing older", c.what, x, d.Allocated, d.Reserved, untraced)
	}
	got := p.lines(c.s, c.process)
	for _, name := range []string{"small", "large", "reused", "?"} {
		if got[name] != want[name] {
			p.t.Errorf("%s: %d bytes of %q, want %d", c.what, got[name], name, want[name])
		}
	}
	for _, part := range c.s.Parts() {
		if part.Process == c.process && (part.Untraced != untraced || part.Unexplained+part.Beyond() != 0) {
			p.t.Errorf("%s: %+v", c.what, part)
		}
	}
}

// TestStacksThroughPausesOfTracing: on the real PyTorch, tensors that were not freed while the
// probe was away keep their stacks; those at whose addresses others may be have none, never an old
// one. All totals are PyTorch's own, to the byte.
func TestStacksThroughPausesOfTracing(t *testing.T) {
	const little, big, most = 300 * 5120, 3 * 8 << 20, 64 << 20
	for name, setting := range map[string]string{"segments by cudaMalloc": "", "expandable segments": realtorch.ExpandableSegments} {
		t.Run(name, func(t *testing.T) {
			m := newTorchMachine(t, 1)
			m.trace(func(c *Config) { c.patience = time.Minute }) // else what a slow machine cannot prove is not traced
			p := &pausedJob{m, t, m.job([]string{setting}, "pauses.py", "--begin"), m.pauses(0.02)}
			m.begun(p.job)
			p.job.Go()
			point := p.job.Next("held")
			p.check(point, map[string]uint64{"small": little, "large": big + most}, 0)

			away := func(next string) realtorch.Point {
				p.keeper.Pause(uint32(point.PID))
				p.job.Go()
				at := p.job.Next(next)
				p.keeper.Update()
				if x := m.check(t, at).tensors(0); x.Allocated != at.Devices[0].Allocated || x.Reserved != at.Devices[0].Reserved {
					t.Errorf("while tensors are not traced at %q: %+v, PyTorch has %+v", next, x, at.Devices[0])
				}
				p.keeper.Resume(uint32(point.PID))
				return at
			}
			p.check(away("same"), map[string]uint64{"small": little, "large": big + most}, 0)
			p.check(away("reused"), map[string]uint64{"large": big + most}, little) // others at the same addresses: no stack
			p.check(away("large"), nil, little+big+most)                            // 64 MiB were freed: any block may be among them
			p.job.Go()
			point = p.job.Next("freed")
			p.check(point, nil, point.Devices[0].Allocated)
			if got := m.meter.Cost().Away; got == 0 {
				t.Error("the pauses are not counted")
			}
			if out, err := p.job.Finish(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
