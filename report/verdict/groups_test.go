// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// named are stacks by their ids.
type named map[uint64][]callstack.Frame

func (n named) Stack(id uint64) []callstack.Frame { return n[id] }

func groups(p *program, st callstack.Stacks) []Group {
	s := p.snapshot()
	return JudgeLines(s, Judge(s, st))
}

func TestALineIsJudgedWithAllItsStacks(t *testing.T) {
	st := named{}
	for id := uint64(1); id <= 160; id++ { // each too seldom to be called leaking
		st[id] = stackOf(fmt.Sprintf("kernel%d [libtorch_cuda.so]", id), "step /home/u/train.py:7")
	}
	p := newProgram(1e7, 1)
	p.train(steps, func(i int) {
		p.use(99, batch)
		if i%10 == 0 {
			p.alloc(1+p.rng.Uint64N(160), 1<<20)
		}
	})
	s := p.snapshot()
	verdicts := Judge(s, st)
	list := JudgeLines(s, verdicts)
	if g := &list[0]; g.Class != Leaking || g.Line.Line != 7 || len(g.Sites) < 50 || g.LiveObjects != steps/10 {
		t.Errorf("%v at line %d of %d sites and %d objects: %s", g.Class, g.Line.Line, len(g.Sites), g.LiveObjects, g.Evidence)
	}
	for i, v := range verdicts {
		if v.Class == Leaking {
			t.Errorf("site %d alone: %s", i, v.Evidence)
		}
	}
}

func TestALeakIsNotHiddenByWhatComesAndGoesAtItsLine(t *testing.T) {
	st := named{1: stackOf("mm [libtorch_cuda.so]", "step /home/u/train.py:7"), 2: stackOf("clone [libtorch_cuda.so]", "step /home/u/train.py:7")}
	p := newProgram(1e7, 1)
	slots := make([]uint64, 300)
	for i := range slots {
		slots[i] = p.alloc(1, batch)
	}
	p.train(steps, func(int) { // a full cache, and beside it a leak
		k := p.rng.IntN(len(slots))
		p.free(slots[k])
		slots[k] = p.alloc(1, 1+p.rng.Uint64N(2*batch))
		p.alloc(2, 4096)
	})
	list := groups(p, st)
	if g := &list[0]; len(list) != 1 || g.Class != Leaking || !near(g.Rate.Value, 4096*100, 4096*5) {
		t.Errorf("%v at %.0f bytes per second: %s", g.Class, g.Rate.Value, g.Evidence)
	}
}

func TestTheLineThatLeaksMostIsFirst(t *testing.T) {
	st := named{
		1: stackOf("x [libtorch.so]", "small /home/u/train.py:1"),
		2: stackOf("x [libtorch.so]", "large /home/u/train.py:2"),
		3: stackOf("x [libtorch.so]", "weights /home/u/train.py:3"),
		4: stackOf("x [libtorch.so]", "AddBackward0::apply(x) [libtorch.so]", "torch::autograd::Engine::thread_main(x) [libtorch.so]"),
		5: stackOf("cudaMalloc [libcudart.so.12]", "x [libnccl.so.2]"),
		6: stackOf("x [libtorch.so]", "begun /home/u/train.py:6"),
	}
	p := newProgram(1e7, 1)
	p.alloc(3, 1<<40)
	p.train(steps, func(i int) {
		p.alloc(1, 4096)
		p.alloc(2, 8192)
		p.alloc(4, 20000) // more, but without a line
		p.alloc(5, 1<<20) // so much more that it matters
		if i > steps*9/10 {
			p.alloc(6, 1<<30)
		}
	})
	var got []string
	for _, g := range groups(p, st) {
		got = append(got, fmt.Sprintf("%v %s", g.Class, g.Line.Function))
	}
	want := []string{"leaking x", "leaking large", "leaking small", "leaking AddBackward0::apply(x)", "growing begun", "one-off weights"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTimeUntilTheGPUIsFull(t *testing.T) {
	p := newProgram(1e7, 1) // 10 ms per step
	p.l.Tell(ledger.GPUs{{UUID: "GPU-a", Total: 80 << 30, Used: 50 << 30}, {UUID: "GPU-b", Total: 1 << 40}})
	p.l.Tell(ledger.Process{PID: 7, Begin: p.begin, Devices: []string{"GPU-a"}})
	p.train(steps, func(int) { p.alloc(1, 1<<20) })
	p.l.Tell(ledger.UsageReading{Time: p.now(), Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: 2 << 30}}})
	v := of(p.snapshot(), 1)
	if v.Class != Leaking || v.UntilFull < 300*time.Second || v.UntilFull > 315*time.Second { // 30 GiB at 100 MiB/s
		t.Errorf("%v, full in %v", v.Class, v.UntilFull)
	}
	s := p.snapshot()
	s.Tensors = []ledger.Tensors{{Device: s.Sites[0].Device, Cached: 20 << 30, OlderCached: 10 << 30}}
	s.Sites[0].Kind = ledger.Tensor
	if v := of(s, 1); v.UntilFull < 600*time.Second || v.UntilFull > 630*time.Second {
		t.Errorf("with a cache for tensors: full in %v", v.UntilFull)
	}
	q := newProgram(1e7, 1)
	q.train(steps, func(int) { q.alloc(1, 1<<20) })
	if v := of(q.snapshot(), 1); v.UntilFull != 0 {
		t.Errorf("without NVML: full in %v", v.UntilFull)
	}
}

func TestAllThatGrowsOnAGPUFillsIt(t *testing.T) {
	s := &ledger.Snapshot{
		Begin: 1e9, End: 21e9,
		GPUs:      []ledger.GPU{{UUID: "GPU-a", Total: 80 << 30, Used: 50 << 30, Time: 21e9, EarlierTime: 11e9, EarlierUsed: 50<<30 - 400*mib}},
		Processes: []ledger.Process{{PID: 7, Devices: []string{"GPU-a"}}, {PID: 8, Devices: []string{"GPU-a"}}},
		Sites:     []ledger.Site{{Process: 0, Kind: ledger.Device, Growth: 100 * mib}, {Process: 1, Kind: ledger.Device, Growth: 200 * mib}},
	}
	j := newJudge(s, nil)
	list := []Group{
		{Process: 0, Verdict: Verdict{Class: Leaking, Rate: Rate{Value: 10 * mib}, UntilFull: 3072 * time.Second}},
		{Process: 1, Verdict: Verdict{Class: Leaking, Rate: Rate{Value: 20 * mib}, UntilFull: 1536 * time.Second}},
		{Process: 1, Verdict: Verdict{Class: Growing, Rate: Rate{Value: 99 * mib}}},
	}
	j.untilFull(list) // 10 and 20 MiB/s, and 10 of a process that is not traced
	for i := range 2 {
		if g := &list[i]; g.UntilFull != 768*time.Second || g.GPURate != 40*mib {
			t.Errorf("%d: full in %v at %.0f bytes per second", i, g.UntilFull, g.GPURate)
		}
	}
	if list[2].UntilFull != 0 {
		t.Errorf("what does not leak fills the GPU in %v", list[2].UntilFull)
	}
}

func TestSegmentsAreACacheWhereTensorsAreReported(t *testing.T) {
	for _, reported := range []bool{true, false} {
		p := newProgram(1e7, 1)
		p.train(steps, func(int) { p.alloc(1, 2<<20) })
		p.l.MarkSegments(func(stack uint64) bool { return stack == 1 })
		if reported {
			p.kind = ledger.Tensor
		}
		v := of(p.snapshot(), 1)
		if want := map[bool]Class{true: Cache, false: Leaking}[reported]; v.Class != want {
			t.Errorf("reported %v: %v, want %v", reported, v.Class, want)
		}
		if reported && !strings.HasPrefix(v.Evidence, "PyTorch's cache grows, its tensors show why: 0 B of 2.34 GiB given out, ") {
			t.Error(v.Evidence)
		}
	}
}

func TestALineOfSegmentsCountsTheTensorsOfAllItsStacks(t *testing.T) {
	p := newProgram(1e7, 1)
	p.train(steps, func(i int) { p.alloc(1+uint64(i)%2, 2<<20) })
	p.l.MarkSegments(func(uint64) bool { return true })
	p.kind = ledger.Tensor
	s := p.snapshot()
	for i := range s.Sites {
		s.Sites[i].Tensors = 512 * mib
	}
	list := JudgeLines(s, Judge(s, named{1: stackOf("step /home/u/train.py:7"), 2: stackOf("step /home/u/train.py:7")}))
	if len(list) != 1 || !strings.HasPrefix(list[0].Evidence, "PyTorch's cache grows, its tensors show why: 1.00 GiB of 2.34 GiB given out, ") {
		t.Errorf("%+v", list)
	}
}

func TestWhatReplacesOlderTensorsIsNotCalledALeak(t *testing.T) {
	for _, replaces := range []bool{true, false} {
		p := newProgram(1e7, 1)
		p.kind = ledger.Tensor
		var older uint64
		p.train(steps, func(i int) { // a buffer that was full at the attach, and is not through yet
			p.alloc(1, 1<<20)
			if replaces {
				older += 1 << 20
			}
			if i%10 == 0 {
				p.l.Tell(ledger.TensorReading{Time: p.now(), Totals: []ledger.TensorTotals{{PID: 7, OlderBytes: older, Allocated: 1 << 40, Reserved: 1 << 40, Classes: p.class}}})
			}
		})
		p.l.Tell(ledger.Sampling(nil))
		v := of(p.l.Snapshot(p.now(), time.Time{}), 1)
		if want := map[bool]Class{true: Growing, false: Leaking}[replaces]; v.Class != want {
			t.Errorf("replaces %v: %v (%s), want %v", replaces, v.Class, v.Evidence, want)
		}
	}
}

// TestNothingThatALedgerGivesMakesAVerdictPanic: events in any order, at any time.
func TestNothingThatALedgerGivesMakesAVerdictPanic(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		l := ledger.New(ledger.Options{Begin: rng.Uint64N(1e9)})
		kinds := []ledger.Kind{ledger.Device, ledger.Tensor, ledger.Pinned, ledger.VMM, ledger.Imported}
		for range rng.IntN(400) {
			e := ledger.Event{
				Op: ledger.Alloc, Kind: kinds[rng.IntN(len(kinds))], PID: 1 + rng.Uint32N(3), Device: int32(rng.IntN(4)) - 2, Time: rng.Uint64N(1 << rng.UintN(64)),
				Address: 1 + rng.Uint64N(40)<<20, Size: rng.Uint64N(1 << rng.UintN(50)), Stack: rng.Uint64N(6), API: "x",
			}
			if e.Kind == ledger.Tensor {
				e.Space = ledger.Blocks
			}
			switch rng.IntN(9) {
			case 0, 1, 2:
				e.Op = ledger.Free
			case 3:
				e.Op = ledger.FreeFailed
			case 4:
				if rng.IntN(20) == 0 {
					e.Op = ledger.Exit
				}
			}
			l.Apply(&e)
		}
		if rng.IntN(2) == 0 {
			l.Tell(ledger.TensorReading{Time: rng.Uint64N(1e10), Totals: []ledger.TensorTotals{{PID: 1, Allocated: rng.Uint64(), Reserved: rng.Uint64(), OlderBytes: rng.Uint64(), Classes: make([]ledger.ClassTotals, 3)}}})
		}
		s := l.Snapshot(rng.Uint64N(1<<rng.UintN(64)), time.Time{})
		for _, st := range []callstack.Stacks{nil, lines{}} {
			list := Judge(s, st)
			again := Judge(s, st)
			if len(list) != len(s.Sites) || !reflect.DeepEqual(list, again) {
				t.Fatalf("seed %d: %d verdicts on %d sites, or not the same twice", seed, len(list), len(s.Sites))
			}
			sites := 0
			for _, g := range JudgeLines(s, list) {
				sites += len(g.Sites)
			}
			if sites != len(s.Sites) {
				t.Errorf("seed %d: %d sites in groups, want %d", seed, sites, len(s.Sites))
			}
			Advise(s, st, list)
			for _, v := range list {
				if v.Score < 0 || v.Score > 1 || v.Rate.Low > v.Rate.High || v.UntilFull < 0 || (v.Class == Unknown) != strings.HasPrefix(v.Evidence, "nothing is known of when") || strings.ContainsAny(v.Evidence, "\n\x1b") {
					t.Errorf("seed %d: %+v", seed, v)
				}
			}
		}
	}
}

// TestASumGrowsOnlyAsItsLinesDo: models that took turns on a GPU made "tensors grow" of lines that
// were all steady.
func TestASumGrowsOnlyAsItsLinesDo(t *testing.T) {
	for _, c := range []struct {
		sum, lines Class
		perhaps    bool
		want       Class
	}{
		{Growing, Unknown, false, Steady},
		{Growing, Unknown, true, Growing},
		{Growing, Leaking, true, Leaking},
		{Leaking, Unknown, false, Growing},
		{Leaking, Leaking, true, Leaking},
		{Steady, Unknown, true, Steady},
	} {
		trend := Trend{Class: c.sum, Grown: 1}
		if trend.follow(Trend{Class: c.lines, Grown: 1}, c.perhaps); trend.Class != c.want {
			t.Errorf("a sum that is %v, lines that are %v, perhaps %v: %+v", c.sum, c.lines, c.perhaps, trend)
		}
	}
}

// TestGrowthThatMayBeNothingHasNoFigure: a line of one sampled tensor grew "at least 2.97 KiB a
// step", and by 512 bytes.
func TestGrowthThatMayBeNothingHasNoFigure(t *testing.T) {
	for _, c := range []struct {
		class Class
		rate  Rate
		want  float64
	}{
		{Leaking, Rate{3, 2, 4}, 3}, {Growing, Rate{3, 2, 4}, 3}, {Growing, Rate{3, 0, 9}, 0}, {Growing, Rate{3, -1, 9}, 0}, {Steady, Rate{3, 2, 4}, 0},
	} {
		g := Group{Verdict: Verdict{Class: c.class, Rate: c.rate}}
		if got := g.PerSecond(); got != c.want {
			t.Errorf("%v %+v: %v, want %v", c.class, c.rate, got, c.want)
		}
	}
}
