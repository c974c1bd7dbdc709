// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// cachesThatGrow are the programs whose cache grows to many times their tensors, besides the leak:
// as pieces of another size stay between large ones, or as a growing tensor is made anew at each
// step.
var cachesThatGrow = []string{"kv_cache.py", "long_prompt.py", "predictions.py"}

// TestPlanesOnStoredRun: of a healthy program no plane grows for certain, unless a line is called
// leaking, which judge counts; and of those that leak one does.
func TestPlanesOnStoredRun(t *testing.T) {
	path, _ := seenFile()
	seen, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	found, leaks, perhaps := 0, 0, 0
	for _, o := range seen {
		for _, m := range o.Moments {
			s := m.Snapshot
			groups := verdict.JudgeLines(s, verdict.Judge(s, o))
			list := verdict.JudgeWhole(s, groups)
			for i := range o.Programs {
				p := &o.Programs[i]
				onGPU := p.onGPU(s)
				var planes verdict.Trend
				for k := range list {
					w := &list[k]
					if !slices.Contains(p.PIDs, s.Processes[w.Process].PID) {
						continue
					}
					for _, trend := range []verdict.Trend{w.Tensors, w.Cache, w.Driver} {
						planes.Add(trend)
						if trend.Grows() && trend.Grown == 0 {
							t.Errorf("%d s, %s: grows by nothing", m.Seconds, p.Name)
						}
					}
					if w.Cache.Class == verdict.Leaking && !slices.Contains(cachesThatGrow, p.Name) {
						t.Errorf("%d s, %s: the cache grows by %d MiB in %v", m.Seconds, p.Name, w.Cache.Grown>>20, w.Cache.Over)
					}
					if m.Seconds >= 60 && slices.Contains(cachesThatGrow, p.Name) && !w.Cache.Grows() && w.Device >= 0 {
						t.Errorf("%d s, %s: the cache does not grow", m.Seconds, p.Name)
					}
				}
				switch {
				case !p.Leaking && planes.Class == verdict.Leaking && len(p.outcome(o, s, groups).alarms) > 0:
				case !p.Leaking && planes.Class == verdict.Leaking:
					t.Errorf("%d s, %s grows by %d MiB in %v", m.Seconds, p.Name, planes.Grown>>20, planes.Over)
				case !p.Leaking && planes.Class == verdict.Growing:
					perhaps++
				case p.Leaking && onGPU:
					if leaks++; planes.Class == verdict.Leaking {
						found++
					}
				}
			}
		}
	}
	t.Logf("a plane grows in %d of %d moments of programs that leak GPU memory, perhaps in %d of healthy ones", found, leaks, perhaps)
	if float64(found) < enough*float64(leaks) {
		t.Errorf("a plane grows in only %d of %d moments of programs that leak", found, leaks)
	}
}

// onGPU reports whether most of what a program has is on the GPU.
func (p *observed) onGPU(s *ledger.Snapshot) bool {
	gpu, host := uint64(0), uint64(0)
	for i := range s.Sites {
		if x := &s.Sites[i]; slices.Contains(p.PIDs, s.Processes[x.Process].PID) {
			if x.Kind.OnHost() || x.Device == ledger.CPUDevice || x.Kind == ledger.Managed {
				host += x.LiveBytes
			} else {
				gpu += x.LiveBytes
			}
		}
	}
	return gpu > host
}
