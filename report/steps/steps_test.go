// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// program imitates a training: its tensors come and go, and its events have stacks.
type program struct {
	f      *Finder
	ids    map[string]uint64
	stacks [][]callstack.Frame
	time   uint64
	next   uint64
	sizes  map[uint64]uint64
	total  uint64
	peak   uint64 // the most so far
	peakAt uint64
	silent bool // sends nothing
	pid    uint32
	record *[]ledger.Event // gets what is sent, too
}

func newProgram(points ...uint64) *program {
	p := &program{ids: map[string]uint64{}, stacks: make([][]callstack.Frame, 1), sizes: map[uint64]uint64{}, next: 1 << 20, pid: 7}
	p.f = NewFinder(p, points)
	p.f.Tell(ledger.SampleRate{Mean: 1 << 20})
	return p
}

func (p *program) Stack(id uint64) []callstack.Frame { return p.stacks[id] }

func python(file, function string, line int) callstack.Frame {
	return callstack.Frame{File: file, Function: function, Line: line, Python: true}
}

const torch = "/usr/lib/python3/dist-packages/torch/"

// forward is a stack below a model that a line of the program calls.
func forward(line int) []callstack.Frame {
	return []callstack.Frame{
		python(torch+"nn/modules/linear.py", "Linear.forward", 1), python(torch+"nn/modules/module.py", "Module._call_impl", 1),
		python("train.py", "Net.forward", 5), python(torch+"nn/modules/module.py", "Module._call_impl", 1), python(torch+"nn/modules/module.py", "Module._wrapped_call_impl", 1),
		python("train.py", "main", line),
	}
}

func loss(line int) []callstack.Frame {
	return []callstack.Frame{python(torch+"nn/functional.py", "cross_entropy", 1), python("train.py", "main", line)}
}

func optimizer(line int) []callstack.Frame {
	return []callstack.Frame{python(torch+"optim/adamw.py", "AdamW.step", 1), python(torch+"optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 1), python("train.py", "main", line)}
}

var (
	backward = []callstack.Frame{{Function: "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)"}}
	own      = []callstack.Frame{python("train.py", "main", 99)}
	batch    = []callstack.Frame{{Function: "at::_ops::to_dtype_layout::call"}, python("train.py", "main", 20)}
	build    = []callstack.Frame{python(torch+"nn/modules/module.py", "Module._apply", 1), python("train.py", "main", 3)}
	clip     = []callstack.Frame{python(torch+"nn/utils/clip_grad.py", "clip_grad_norm_", 1), python("train.py", "main", 50)}
	lbfgs    = []callstack.Frame{python(torch+"optim/lbfgs.py", "LBFGS.step", 1), python(torch+"optim/optimizer.py", "Optimizer.profile_hook_step.<locals>.wrapper", 1), python("train.py", "main", 60)}
)

func (p *program) id(stack []callstack.Frame) uint64 {
	key := ""
	for i := range stack {
		key += stack[i].File + stack[i].Function + string(rune(stack[i].Line)) + "\n"
	}
	id, known := p.ids[key]
	if !known {
		id = uint64(len(p.stacks))
		p.ids[key] = id
		p.stacks = append(p.stacks, stack)
	}
	return id
}

func (p *program) alloc(stack []callstack.Frame, sizes ...uint64) (list []uint64) {
	for _, size := range sizes {
		p.time += 1000
		p.next += 1 << 20
		p.total += size
		p.sizes[p.next] = size
		if p.total > p.peak {
			p.peak, p.peakAt = p.total, p.time
		}
		p.send(ledger.Event{Op: ledger.Alloc, Address: p.next, Size: size, Stack: p.id(stack)})
		list = append(list, p.next)
	}
	return list
}

func (p *program) free(lists ...[]uint64) {
	for _, list := range lists {
		for _, address := range list {
			p.time += 1000
			p.total -= p.sizes[address]
			p.send(ledger.Event{Op: ledger.Free, Address: address})
		}
	}
}

func (p *program) send(e ledger.Event) {
	e.Kind, e.Space, e.PID, e.Time, e.Told, e.Allocated, e.Reserved = ledger.Tensor, ledger.Blocks, p.pid, p.time, ledger.ToldAllocated, p.total, p.total
	if p.record != nil {
		*p.record = append(*p.record, e)
	}
	if !p.silent {
		p.f.Apply(&e)
	}
}

// train runs a forward pass from a line, and its backward pass, and returns the gradients.
func (p *program) train(line int, size uint64) []uint64 {
	x := p.alloc(batch, size)
	saved := p.alloc(forward(line), size, 2*size, size)
	temporary := p.alloc(forward(line), size/2)
	p.free(temporary)
	saved = append(saved, p.alloc(loss(line+1), size)...)
	grads := p.backward(saved)
	p.free(x)
	return grads
}

// backward frees what is saved, and leaves gradients, that of the last layer first.
func (p *program) backward(saved []uint64) (grads []uint64) {
	slices.Reverse(saved)
	for _, s := range saved {
		grads = append(grads, p.alloc(backward, 64)...)
		t := p.alloc(backward, p.sizes[s]/2)
		p.free([]uint64{s}, t)
	}
	return grads
}

// evaluate runs a model without gradients, several times.
func (p *program) evaluate(line, times int, size uint64) {
	var out []uint64
	for range times {
		x := p.alloc(batch, size)
		a := p.alloc(forward(line), size)
		b := p.alloc(forward(line), size)
		p.free(a, out)
		out = p.alloc(loss(line+1), 64)
		p.free(b, x)
	}
	p.free(out)
}

func (p *program) step(line int) { p.free(p.alloc(optimizer(line), 128, 64)) }

func (p *program) found(t *testing.T) *Steps {
	t.Helper()
	list := p.f.Steps()
	if len(list) != 1 {
		t.Fatalf("%d processes have steps, want 1: %+v", len(list), list)
	}
	return &list[0]
}

func check(t *testing.T, s *Steps, by By, sure Sure, count uint64, passes int) {
	t.Helper()
	if s.By != by || s.Sure != sure || s.Count != count || s.Passes != passes {
		t.Errorf("%d steps by %v, %v, with %d backward passes; want %d by %v, %v, with %d", s.Count, s.By, s.Sure, s.Passes, count, by, sure, passes)
	}
	var n uint64
	for i := range s.List {
		x := &s.List[i]
		if x.Number != n+1 || x.From > x.To || i > 0 && x.From < s.List[i-1].To {
			t.Errorf("step %d is %+v", i, x)
		}
		n += x.Count
	}
	if n != s.Count {
		t.Errorf("the records have %d steps of %d", n, s.Count)
	}
}

// twice runs a program again with its peak as a point, and returns its steps and where the peak
// lies.
func twice(t *testing.T, run func(p *program)) (*Steps, Place) {
	t.Helper()
	p := newProgram()
	run(p)
	q := newProgram(p.peakAt)
	run(q)
	s := q.found(t)
	at, ok := s.At(p.peakAt)
	if !ok || at.Detail == nil {
		t.Fatalf("the peak is in no step: %+v", at)
	}
	return s, at
}

func wantPlace(t *testing.T, got Place, step uint64, between bool, want phase.Phase) {
	t.Helper()
	if got.Step != step || got.Between != between || got.Phase != want {
		t.Errorf("the peak is in step %d (between: %v), in %v; want %d (%v), in %v", got.Step, got.Between, got.Phase, step, between, want)
	}
}

func TestEachOptimizerStepEndsAStep(t *testing.T) {
	s, at := twice(t, func(p *program) {
		p.alloc(build, 1000)
		for i := range 60 {
			size := uint64(100 + i%3) // steps of varying length
			if i == 40 {
				size = 5000
			}
			g := p.train(30, size)
			p.alloc(own) // nothing
			p.free(p.alloc(clip, 10))
			p.step(40)
			p.free(g)
		}
	})
	check(t, s, Optimizer, Certain, 60, 1)
	wantPlace(t, at, 41, false, phase.Backward)
	if s.Partial || s.Open || len(s.Optimizers) != 1 || s.Optimizers[0].Line != 40 {
		t.Errorf("%+v", s)
	}
	if k := s.Index(0); k != 0 || s.Step(41).High[0] < 5000*5 || s.Step(40).High[0] > 3000 {
		t.Errorf("step 41 has %v, step 40 %v", s.Step(41).High, s.Step(40).High)
	}
	var phases []phase.Phase
	for _, r := range at.Detail.Runs {
		if n := len(phases); n == 0 || phases[n-1] != r.Phase {
			phases = append(phases, r.Phase)
		}
	}
	if want := []phase.Phase{phase.Data, phase.Forward, phase.Backward, phase.Step}; !slices.Equal(phases, want) {
		t.Errorf("step 41 is %v, want %v", phases, want)
	}
	if n := s.Within(s.Step(11).From, s.Step(30).To); n != 20 {
		t.Errorf("%d steps from the 11th to the 30th", n)
	}
}

func TestTheOptimizersOwnPeakIsItsPhase(t *testing.T) {
	_, at := twice(t, func(p *program) {
		for i := range 6 {
			g := p.train(30, 100)
			p.free(p.alloc(optimizer(40), uint64(1000*(i%4))+1))
			p.free(g)
		}
	})
	wantPlace(t, at, 4, false, phase.Step)
}

func TestAccumulatedGradientsAreOneStep(t *testing.T) {
	s, at := twice(t, func(p *program) {
		for i := range 20 {
			var grads []uint64
			for k := range 4 {
				size := uint64(100)
				if i == 12 && k == 2 {
					size = 1000
				}
				x := p.alloc(batch, size)
				saved := p.alloc(forward(30), size, size)
				saved = append(saved, p.alloc(loss(31), size)...)
				if i == 12 && k == 2 {
					grads = append(grads, p.alloc(backward, 64)...)
					p.free(p.alloc(backward, 9000))
				}
				grads = append(grads, p.backward(saved)...)
				p.free(x)
			}
			p.step(40)
			p.free(grads)
		}
	})
	check(t, s, Optimizer, Certain, 20, 4)
	wantPlace(t, at, 13, false, phase.Backward)
}

func TestAnEvaluationIsBetweenSteps(t *testing.T) {
	run := func(decorated bool) func(p *program) {
		return func(p *program) {
			for i := range 20 {
				p.free(p.train(30, 100))
				p.step(40)
				if i%5 == 4 {
					size := uint64(50)
					if i == 9 {
						size = 4000
					}
					p.evaluate(70, 6, size)
				}
			}
		}
	}
	s, at := twice(t, run(false))
	check(t, s, Optimizer, Certain, 20, 1)
	wantPlace(t, at, 10, true, phase.Evaluation)
	for i := range s.List {
		if s.List[i].High[0] > 2000 {
			t.Errorf("step %d has %v: the evaluation is in it", i+1, s.List[i].High)
		}
	}
}

func TestAnEvaluationAtTheEndIsAfterTheLastStep(t *testing.T) {
	s, at := twice(t, func(p *program) {
		p.alloc(build, 100)
		for range 5 {
			p.free(p.train(30, 100))
			p.step(40)
			p.evaluate(70, 2, 10)
		}
		p.evaluate(70, 2, 3000)
	})
	check(t, s, Optimizer, Certain, 5, 1)
	wantPlace(t, at, 5, true, phase.Evaluation)
	if s.Open {
		t.Error("an evaluation is a step under way")
	}
}

func TestATeacherIsPartOfEachStep(t *testing.T) {
	s, at := twice(t, func(p *program) {
		for i := range 10 {
			size := uint64(100)
			if i == 6 {
				size = 6000
			}
			p.free(p.alloc(forward(25), size, size))
			p.free(p.train(30, 100))
			p.step(40)
		}
	})
	check(t, s, Optimizer, Certain, 10, 1)
	wantPlace(t, at, 7, false, phase.Evaluation)
}

func TestASetupIsBeforeTheFirstStep(t *testing.T) {
	_, at := twice(t, func(p *program) {
		p.free(p.alloc(build, 90000))
		for range 4 {
			p.free(p.train(30, 100))
			p.step(40)
		}
	})
	wantPlace(t, at, 0, true, phase.Setup)
}

func TestTwoOptimizersInARowAreOneStep(t *testing.T) {
	p := newProgram()
	for range 12 {
		p.free(p.train(30, 100))
		p.step(40)
		p.step(41)
	}
	check(t, p.found(t), Optimizer, Certain, 12, 1)
}

func TestOptimizersThatTakeTurnsShareAStep(t *testing.T) {
	p := newProgram()
	for range 12 {
		p.free(p.train(30, 100))
		p.step(40)
		p.free(p.train(45, 100))
		p.step(50)
	}
	s := p.found(t)
	check(t, s, Optimizer, Certain, 12, 2)
	if len(s.Optimizers) != 2 {
		t.Errorf("%v", s.Optimizers)
	}
}

func TestOptimizersOfDifferentFrequencyAreStepsEach(t *testing.T) {
	p := newProgram()
	for i := range 12 {
		p.free(p.train(30, 100))
		p.step(40)
		if i%3 == 2 {
			p.free(p.train(45, 100))
			p.step(50)
		}
	}
	check(t, p.found(t), Optimizer, Certain, 16, 1)
}

func TestAServerHasNoSteps(t *testing.T) {
	p := newProgram()
	p.alloc(build, 1000)
	for i := range 500 {
		p.evaluate(70, 1, uint64(100+i%7))
	}
	if list := p.f.Steps(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestATrainingThatOnlyBeganHasNoSteps(t *testing.T) {
	p := newProgram()
	p.alloc(build, 1000)
	p.alloc(forward(30), 100, 100)
	if list := p.f.Steps(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestAStartInTheMiddleOfAStepIsItsFirst(t *testing.T) {
	p := newProgram()
	p.silent = true
	saved := p.alloc(forward(30), 100, 100, 100)
	p.silent = false
	g := p.backward(saved)
	for range 9 {
		p.step(40)
		p.free(g)
		g = p.train(30, 100)
	}
	s := p.found(t)
	check(t, s, Optimizer, Certain, 9, 1)
	if !s.Partial || !s.Open {
		t.Errorf("partial %v, open %v", s.Partial, s.Open)
	}
}

// Fused optimizers and SGD allocate nothing. Where gradients are dropped does not matter.
func TestDroppedGradientsEndAStep(t *testing.T) {
	for name, run := range map[string]func(p *program){
		"at the end": func(p *program) { p.free(p.train(30, 100)) },
		"before the next forward pass": func(p *program) {
			g := p.train(30, 100)
			p.alloc(own, 1)
			p.free(g)
		},
		"accumulated": func(p *program) { p.free(p.train(30, 100), p.train(30, 100), p.train(30, 100)) },
	} {
		p := newProgram()
		for range 15 {
			run(p)
		}
		passes := 1
		if name == "accumulated" {
			passes = 3
		}
		t.Run(name, func(t *testing.T) { check(t, p.found(t), ZeroGrad, Likely, 15, passes) })
	}
	p := newProgram()
	var before []uint64
	for range 15 { // loss = model(x); optimizer.zero_grad(); loss.backward()
		saved := p.alloc(forward(30), 100, 200, 100, 100)
		p.free(before)
		before = p.backward(saved)
	}
	t.Run("before the backward pass", func(t *testing.T) {
		s := p.found(t)
		check(t, s, ZeroGrad, Likely, 14, 1)
		if !s.Open {
			t.Error("the last step has not ended")
		}
	})
}

// A leak of what backward passes allocate does not hide that the rest is dropped.
func TestDroppedGradientsBesideALeak(t *testing.T) {
	p := newProgram()
	for range 40 {
		g := p.train(30, 100)
		p.alloc(own, 20)     // kept
		p.alloc(backward, 3) // likewise
		p.free(append(g, p.alloc(nil, 7)...))
	}
	check(t, p.found(t), ZeroGrad, Likely, 40, 1)
}

// Momentum is allocated in the first step only.
func TestAnOptimizerThatAllocatesOnceIsNoEvidence(t *testing.T) {
	p := newProgram()
	for i := range 15 {
		g := p.train(30, 100)
		if i == 0 {
			p.alloc(optimizer(40), 64, 64)
		}
		p.free(g)
	}
	check(t, p.found(t), ZeroGrad, Likely, 15, 1)
}

func TestGradientsThatStayLeaveOnlyThePeriod(t *testing.T) {
	p := newProgram()
	grads := false
	for range 15 {
		saved := p.alloc(forward(30), 100, 100, 100)
		if !grads {
			p.backward(saved)
			grads = true
			continue
		}
		p.free(p.alloc(backward, 50))
		p.free(saved)
	}
	check(t, p.found(t), Period, Guess, 14, 1)
}

// An optimizer that evaluates a closure several times has steps only where something else shows
// their ends.
func TestClosuresAreNoSteps(t *testing.T) {
	p := newProgram()
	inside := append(slices.Clone(forward(30)), lbfgs...)
	for range 10 {
		for range 5 {
			p.free(p.backward(p.alloc(inside, 100, 100, 100)))
			p.free(p.alloc(lbfgs, 100))
		}
		p.alloc(own, 1)
	}
	if list := p.f.Steps(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	p = newProgram()
	for range 10 {
		x := p.alloc(batch, 100)
		for range 5 {
			p.free(p.backward(p.alloc(inside, 100, 100, 100)))
			p.free(p.alloc(lbfgs, 100))
		}
		p.free(x)
	}
	check(t, p.found(t), Optimizer, Certain, 10, 5)
}

// Samples may lack what an optimizer allocates: then the gradients show more steps, or it is said.
func TestStepsThatNoSampleShowsAreDoubted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	p := newProgram()
	for range 100 {
		g := p.train(30, 100)
		if random.IntN(2) == 0 {
			p.step(40)
		}
		p.free(g)
	}
	check(t, p.found(t), ZeroGrad, Likely, 100, 1)
	p = newProgram()
	var g []uint64
	for i := range 100 {
		if i == 0 {
			g = p.train(30, 100)
		} else {
			p.free(p.train(30, 100)[:3])
		}
		if random.IntN(2) == 0 {
			p.step(40)
		}
	}
	_ = g
	if s := p.found(t); s.Sure == Certain {
		t.Errorf("%d of 100 steps are certain", s.Count)
	}
}

func TestManyStepsNeedLittleMemory(t *testing.T) {
	p := newProgram()
	const many = 20_000
	for range many {
		p.free(p.train(30, 100))
		p.step(40)
	}
	s := p.found(t)
	check(t, s, Optimizer, Certain, many, 1)
	if len(s.List) > maxSteps || len(s.details) > maxDetails {
		t.Errorf("%d records, %d details", len(s.List), len(s.details))
	}
	if n := s.Within(s.From, s.To+1); n != many {
		t.Errorf("%d steps within all", n)
	}
}

func TestALongTimeWithoutStepsNeedsLittleMemory(t *testing.T) {
	p := newProgram()
	for i := range 30_000 {
		p.free(p.alloc(forward(30+i%50), 100))
	}
	if n := len(p.f.running[p.pid].bursts.open); n > maxRuns {
		t.Errorf("%d runs", n)
	}
	p.free(p.train(200, 100))
	p.step(40)
	check(t, p.found(t), Optimizer, Certain, 1, 1)
}

func TestAPIDThatRunsAnotherProgramBeginsAnew(t *testing.T) {
	p := newProgram()
	for range 2 {
		for range 5 {
			p.free(p.train(30, 100))
			p.step(40)
		}
		p.f.Apply(&ledger.Event{Op: ledger.Exec, PID: p.pid, Time: p.time})
	}
	list := p.f.Steps()
	if len(list) != 2 || list[0].Count != 5 || list[1].Count != 5 || list[0].To > list[1].From {
		t.Errorf("%+v", list)
	}
}

// Files are hostile: any order of any events must neither panic nor need memory without limit.
func TestAnyEventsAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	stacks := [][]callstack.Frame{nil, forward(30), loss(31), backward, optimizer(40), batch, build, own, clip, lbfgs, append(slices.Clone(forward(30)), lbfgs...)}
	for range 50 {
		p := newProgram(random.Uint64(), 5, 1<<63)
		for range 3000 {
			e := ledger.Event{
				Op: ledger.Op(1 + random.IntN(33)), Kind: ledger.Tensor, Space: ledger.Blocks, PID: uint32(random.IntN(4)), Device: int32(random.IntN(200) - 3),
				Time: random.Uint64() >> random.IntN(64), Address: uint64(random.IntN(50)), Size: random.Uint64() >> random.IntN(64),
				Told: ledger.Told(random.IntN(4)), Allocated: random.Uint64() >> random.IntN(64),
				Stack: p.id(stacks[random.IntN(len(stacks))]),
			}
			p.f.Apply(&e)
		}
		for _, s := range p.f.Steps() {
			if len(s.Devices) > maxDevices || len(s.details) > maxDetails {
				t.Errorf("%d devices, %d details", len(s.Devices), len(s.details))
			}
			for _, at := range []uint64{0, 5, 1 << 63, s.From, s.To} {
				s.At(at)
			}
			s.Within(0, 1<<64-1)
			for k := range len(s.Devices) + 1 {
				s.Highs(k)
				s.Growth(k)
				if at, _, ok := s.Peak(k); ok && at.Detail != nil {
					for _, d := range []*Detail{at.Detail, at.Detail.Between()} {
						d.Parts(k)
						d.Curve(k)
						d.Phases()
					}
					s.PlaceText(at)
				}
			}
			s.PerStep(1e300)
			s.Text()
		}
	}
}

// BenchmarkFinder plays the events of a training.
func BenchmarkFinder(b *testing.B) {
	p := newProgram()
	var events []ledger.Event
	p.record = &events
	for range 1000 {
		p.free(p.train(30, 100))
		p.step(40)
	}
	b.ResetTimer()
	for range b.N {
		f := NewFinder(p, nil)
		for i := range events {
			f.Apply(&events[i])
		}
		if list := f.Steps(); len(list) != 1 || list[0].Count != 1000 {
			b.Fatal(list)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}
