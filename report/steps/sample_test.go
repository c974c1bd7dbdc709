// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const kib, mib = 1 << 10, 1 << 20

// sampledEvents returns what a session sees of a program: a sample by size, one tensor in 1 MiB,
// and the totals after each change of 2 MiB.
func sampledEvents(seed uint64, run func(p *program)) (*program, []ledger.Event) {
	p, all := eventsOf(run)
	random := rand.New(rand.NewPCG(seed, 1))
	var seen []ledger.Event
	var told uint64
	sampled := map[uint64]bool{}
	for _, e := range all {
		switch {
		case e.Op == ledger.Alloc && (e.Size >= mib || random.Float64() < -math.Expm1(-float64(e.Size)/mib)):
			sampled[e.Address] = true
		case e.Op == ledger.Free && sampled[e.Address]:
			delete(sampled, e.Address)
		case max(e.Allocated, told)-min(e.Allocated, told) >= 2*mib:
			e.Op, e.Address, e.Size, e.Stack = ledger.Totals, 0, 0, 0
		default:
			continue
		}
		told = e.Allocated
		seen = append(seen, e)
	}
	return p, seen
}

func stepsOfEvents(t *testing.T, p *program, events []ledger.Event) *Steps {
	t.Helper()
	f := NewFinder(p, nil)
	f.Tell(ledger.SampleRate{Mean: mib})
	for i := range events {
		f.Apply(&events[i])
	}
	list := f.Steps()
	if len(list) != 1 {
		t.Fatalf("%d processes have steps", len(list))
	}
	return &list[0]
}

// smallOptimizer is a step of an optimizer of which 2 % have no tensor in the sample.
func smallOptimizer(p *program) {
	for range 16 {
		p.free(p.alloc(optimizer(40), 256*kib))
	}
}

// TestStepsThatTheSampleLacksAreFoundAndNotCertain: of 615 steps, the optimizer of about 13 is not
// in the sample. Their backward passes show them, and the text says so.
func TestStepsThatTheSampleLacksAreFoundAndNotCertain(t *testing.T) {
	const steps = 615
	for name, passes := range map[string]int{"one pass": 1, "accumulated": 2} {
		for seed := range uint64(5) {
			p, events := sampledEvents(seed, func(p *program) {
				first := true
				for range steps {
					for range passes {
						if g := p.train(30, 2*mib); !first {
							p.free(g)
						}
						first = false
					}
					smallOptimizer(p)
					p.alloc(own, mib) // kept
				}
			})
			s := stepsOfEvents(t, p, events)
			if s.By != Optimizer || s.Sure != Likely || s.Passes != passes || s.Unseen < 3 {
				t.Errorf("%s: %s", name, s.Text())
			}
			if d := int(s.Count) - steps; d < -3 || d > 0 { // of the first steps, nobody knows how many passes each has
				t.Errorf("%s: %s; the program has %d", name, s.Text(), steps)
			}
			if !strings.Contains(s.Text(), " of them only by backward passes, since tensors are sampled") || s.Pace() == 0 || s.Growth(0) != (Rate{mib - mib/mostLacking, mib}) { // one in 50 may still be missing
				t.Errorf("%s: %s, pace %v, growth %+v", name, s.Text(), s.Pace(), s.Growth(0))
			}
		}
	}
}

// TestStepsThatNothingShowsAreEstimated: without a sampled forward pass, two backward passes are
// one, so that steps are missing. It is said how many.
func TestStepsThatNothingShowsAreEstimated(t *testing.T) {
	const steps = 615
	p, events := sampledEvents(3, func(p *program) {
		for range steps {
			p.alloc(backward, 2*mib)
			smallOptimizer(p)
		}
	})
	s := stepsOfEvents(t, p, events)
	lacks := steps - s.Count
	if lacks == 0 || s.Sure != Likely || s.Missing == 0 || max(lacks, s.Missing)-min(lacks, s.Missing) > 10 {
		t.Errorf("%s; %d are missing", s.Text(), lacks)
	}
	if !strings.HasPrefix(s.Text(), "at least ") || !strings.Contains(s.Text(), "; about ") || !strings.Contains(s.Text(), " more may be missing, since tensors are sampled (--sample 0 takes all)") {
		t.Error(s.Text())
	}
}

// TestMorePassesInSomeStepsAreNoSteps: where the sample cannot lack an optimizer, a step with twice
// as many backward passes is one step.
func TestMorePassesInSomeStepsAreNoSteps(t *testing.T) {
	run := func(stack []callstack.Frame, sizes ...uint64) func(p *program) {
		return func(p *program) {
			for i := range 320 {
				p.free(p.train(30, 2*mib))
				if i%16 == 15 {
					p.free(p.train(35, 2*mib))
				}
				p.free(p.alloc(stack, sizes...))
			}
		}
	}
	for name, run := range map[string]func(p *program){
		"one large tensor":   run(optimizer(40), mib),
		"many small tensors": run(optimizer(40), slices.Repeat([]uint64{700 * kib}, 24)...),
	} {
		p, events := sampledEvents(7, run)
		s := stepsOfEvents(t, p, events)
		t.Run(name, func(t *testing.T) { check(t, s, Optimizer, Certain, 320, 1) })
	}
}

// TestTensorsOfAHalvedRateMayBeMissing: beyond the limit of samples, large tensors too are a
// sample.
func TestTensorsOfAHalvedRateMayBeMissing(t *testing.T) {
	p, events := eventsOf(func(p *program) {
		for range 40 {
			p.free(p.train(30, 2*mib))
			p.free(p.alloc(optimizer(40), 2*mib))
		}
	})
	check(t, stepsOfEvents(t, p, events), Optimizer, Certain, 40, 1)
	for i := range events {
		events[i].Halvings = 1
	}
	if s := stepsOfEvents(t, p, events); s.Sure != Likely || !strings.Contains(s.Text(), "some may be missing") {
		t.Error(s.Text())
	}
}
