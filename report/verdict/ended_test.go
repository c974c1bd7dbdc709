// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// ended are programs whose growth is over, or that collect garbage in waves.
var ended = []struct {
	name string
	run  func(p *program)
}{
	{"buffer that began to fill late, and is full", func(p *program) {
		f := fifo{p: p, line: 1, depth: 480}
		p.train(steps, func(i int) {
			p.use(2, batch)
			if i > 300 {
				f.put(batch)
			}
		})
	}},
	{"traffic that grew until a moment ago", func(p *program) {
		var flight []uint64
		p.train(steps, func(i int) {
			for len(flight) < min(i, 900)/20 {
				flight = append(flight, p.alloc(1, batch/8+p.rng.Uint64N(batch/50)))
			}
			for range 4 {
				if k := p.rng.IntN(len(flight) + 1); k < len(flight) {
					p.free(flight[k])
					flight[k] = p.alloc(1, batch/8+p.rng.Uint64N(batch/50))
				}
			}
		})
	}},
	{"layers that were unfrozen one after the other", func(p *program) {
		p.train(steps, func(i int) {
			p.use(2, batch)
			if i%130 == 0 && i < 910 {
				for range 4 {
					p.alloc(1, batch)
				}
			}
		})
	}},
	{"leak that was repaired a while ago", func(p *program) {
		p.train(steps, func(i int) {
			p.use(2, batch)
			if i%20 == 0 && i < 900 {
				p.alloc(1, batch)
			}
		})
	}},
	{"a few blocks until three quarters", func(p *program) {
		p.train(500, func(i int) {
			p.use(2, batch)
			if i < 375 && i%25 == 0 {
				p.alloc(1, 300<<10+p.rng.Uint64N(3<<20))
			}
		})
	}},
	{"garbage that is collected every 300 steps", func(p *program) {
		var garbage []uint64
		p.train(steps-60, func(i int) {
			garbage = append(garbage, p.alloc(1, 1<<20))
			if i%300 == 299 {
				for _, a := range garbage {
					p.free(a)
				}
				garbage = nil
			}
		})
	}},
	{"two callers of one cache", func(p *program) {
		f := fifo{p: p, line: 1, depth: 200}
		p.train(steps, func(i int) {
			f.line = 1
			if p.rng.IntN(steps) < i {
				f.line = 2
			}
			f.put(1 << 20)
		})
	}},
}

func TestGrowthThatHasEndedIsNoLeak(t *testing.T) {
	st := named{1: stackOf("empty [libtorch.so]", "train /home/u/train.py:7"), 2: stackOf("empty [libtorch.so]", "validate /home/u/train.py:7")}
	for _, x := range ended {
		for _, scale := range []float64{3e6, 1e7, 2.3e7, 1.3e8} {
			for seed := range uint64(4) {
				p := newProgram(scale, seed)
				if seed%2 == 1 {
					p.kind, p.one = ledger.Tensor, 1<<20
				}
				x.run(p)
				for _, g := range groups(p, st) {
					if g.Class == Leaking {
						t.Errorf("%s, steps of %.0f ns, seed %d: line %d: %s", x.name, scale, seed, g.Line.Line, g.Evidence)
					}
				}
			}
		}
	}
}

func TestAPoolOfFewItemsThatWandersIsNoLeak(t *testing.T) {
	st := named{}
	for id := uint64(1); id <= 12; id++ {
		st[id] = stackOf("empty [libtorch.so]", "put /home/u/pool.py:7")
	}
	alarms := 0
	for seed := range uint64(100) {
		p := newProgram(2.5e7, seed)
		p.kind, p.one = ledger.Tensor, 1<<20
		slots := make([]uint64, 48)
		p.train(400, func(int) {
			k := p.rng.IntN(len(slots))
			if slots[k] != 0 {
				p.free(slots[k])
			}
			slots[k] = p.alloc(1+p.rng.Uint64N(12), 400<<10+p.rng.Uint64N(2600<<10))
		})
		if g := groups(p, st); g[0].Class == Leaking {
			alarms++
			t.Log(seed, g[0].Evidence)
		}
	}
	if alarms > 3 { // 7 before levels that wander were told from trends, and tails of caches from leaks
		t.Errorf("%d of 100 are called leaking", alarms)
	}
}

// A full buffer whose items are replaced one by one at random: those from before the attach become
// fewer as newer ones become more.
func TestWhatReplacesOlderTensorsOneByOneIsNoLeak(t *testing.T) {
	for seed := range uint64(10) {
		p := newProgram(1e7, seed)
		p.kind = ledger.Tensor
		var freed [ledger.HistoryLen]uint64
		slots := make([]uint64, 600)
		older, gone := len(slots), uint64(0)
		p.train(steps, func(i int) {
			k := p.rng.IntN(len(slots))
			if slots[k] != 0 {
				p.free(slots[k])
			} else {
				older, gone = older-1, gone+1<<20
			}
			slots[k] = p.alloc(1, 1<<20)
			freed[i*len(freed)/steps] = gone
		})
		s := p.snapshot()
		s.Tensors[0].OlderFreed = freed
		if v := of(s, 1); v.Class == Leaking {
			t.Errorf("seed %d, %d older left: %s", seed, older, v.Evidence)
		}
		for _, w := range JudgeWhole(s, nil) { // all tensors take the same all the time
			if w.Tensors.Grows() {
				t.Errorf("seed %d: tensors are said to grow by %d bytes in %v", seed, w.Tensors.Grown, w.Tensors.Over)
			}
		}
	}
}

func TestGrowthOfAMomentIsNoLeakYet(t *testing.T) {
	p := newProgram(1e7, 1)
	p.train(300, func(int) { p.alloc(1, 1<<20) })
	if v := of(p.snapshot(), 1); v.Class != Growing || v.Needs < 2*time.Second || v.Needs > 3*time.Second || !strings.HasPrefix(v.Evidence, "too early: grows for 3.0s only, needs ") {
		t.Errorf("%v, needs %v: %s", v.Class, v.Needs, v.Evidence)
	}
}

func TestBurstsAreNotReplacedByNothing(t *testing.T) {
	p := newProgram(1e7, 1)
	p.kind = ledger.Tensor
	for _, x := range programs {
		if x.name == "bursts of a leak" {
			x.run(p)
		}
	}
	s := p.snapshot()
	s.Tensors[0].OlderFreed = [ledger.HistoryLen]uint64{}
	if v := of(s, 1); v.Class != Leaking || v.Rate.Value <= 0 {
		t.Errorf("%v, %+v: %s", v.Class, v.Rate, v.Evidence)
	}
}

func TestTheSampleOfACacheIsNoLeak(t *testing.T) {
	for seed := range uint64(40) {
		p := newProgram(1e7*(1+float64(seed)/53), seed+100)
		p.kind, p.one = ledger.Tensor, 1<<20
		cache := newLRU(p, 200)
		cache.bytes = 64 << 10 << (seed % 2 * 2)
		p.train(5*steps, func(int) { cache.get(p.rng.IntN(20) * p.rng.IntN(40)) })
		if v := of(p.snapshot(), 1); v.Class == Leaking {
			t.Errorf("seed %d: %s", seed, v.Evidence)
		}
	}
}

func TestALevelThatWandersIsNoLeak(t *testing.T) {
	for seed := range uint64(200) {
		p := newProgram(1e7*(1+float64(seed)/53), seed+100)
		slots := make([]uint64, 100)
		for i := range slots {
			slots[i] = p.alloc(1, batch)
		}
		p.train(2000, func(int) {
			k := p.rng.IntN(len(slots))
			p.free(slots[k])
			slots[k] = p.alloc(1, 1+p.rng.Uint64N(2*batch))
		})
		if v := of(p.snapshot(), 1); v.Class == Leaking {
			t.Errorf("seed %d: %s", seed, v.Evidence)
		}
	}
}
