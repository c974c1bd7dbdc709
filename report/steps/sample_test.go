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

// sampling has the probability of each size class for a sample of one tensor in 1 MiB.
var sampling = func() ledger.Sampling {
	list := make(ledger.Sampling, ledger.SizeClass(mib))
	for class := range list {
		size := math.Ldexp(512, (class-1)>>2) * (1 + float64((class-1)&3)/4)
		list[class] = -math.Expm1(-size / mib)
	}
	return list
}()

func probability(size uint64) float64 {
	if class := ledger.SizeClass(size); class < len(sampling) {
		return sampling[class]
	}
	return 1
}

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
		case e.Op == ledger.Alloc && random.Float64() < probability(e.Size):
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
	f.Tell(sampling)
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
		high := 0
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
			if s.Missing > 0 { // the estimate is more than twice what is missing
				high++
				continue
			}
			if !strings.Contains(s.Text(), " of them only by backward passes, since tensors are sampled") || s.Pace() == 0 || s.Growth(0) != (Rate{mib - mib/mostLacking, mib}) { // one in 50 may still be missing
				t.Errorf("%s: %s, pace %v, growth %+v", name, s.Text(), s.Pace(), s.Growth(0))
			}
		}
		if high > 1 {
			t.Errorf("%s: estimates of %d runs in 5 are too high", name, high)
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

// TestMissingStepsAreEstimatedForAllOptimizers: the estimate has the truth on average, however few
// and small the tensors of a step are. Where steps differ, it may be too low.
func TestMissingStepsAreEstimatedForAllOptimizers(t *testing.T) {
	const steps, runs = 1000, 100
	all := func(n int, size uint64) func(int) []uint64 {
		list := slices.Repeat([]uint64{size}, n)
		return func(int) []uint64 { return list }
	}
	for name, c := range map[string]struct {
		sizes func(step int) []uint64
		low   float64 // the least estimate for one step that is missing
	}{
		"one tensor":           {all(1, 256*kib), 0.95},
		"one large tensor":     {all(1, 768*kib), 0.95},
		"one small tensor":     {all(1, 64*kib), 0.9},
		"two":                  {all(2, 256*kib), 0.95},
		"three":                {all(3, 256*kib), 0.95},
		"three large":          {all(3, 512*kib), 0.95},
		"sixteen":              {all(16, 64*kib), 0.95},
		"a hundred":            {all(100, 12*kib), 0.95},
		"a weight and scalars": {func(int) []uint64 { return append(slices.Repeat([]uint64{512}, 20), 640*kib) }, 0.95},
		"two sizes":            {func(int) []uint64 { return []uint64{128 * kib, 128 * kib, 640 * kib, 512 * kib} }, 0.95},
		"state in step 1":      {func(step int) []uint64 { return all(map[bool]int{true: 256, false: 8}[step == 0], 128*kib)(0) }, 0.95},
		"a large one sometimes": {func(step int) []uint64 {
			return all(3, map[bool]uint64{true: 2 * mib, false: 256 * kib}[step%8 == 0])(0)
		}, 0.95},
		"two optimizers": {func(step int) []uint64 { return all(4+8*(step%2), 256*kib)(0) }, 0.7},
		"one to eight":   {func(step int) []uint64 { return all(1+step%8, 256*kib)(0) }, 0.6},
	} {
		random := rand.New(rand.NewPCG(4, 5))
		var lacks int
		var estimate float64
		for range runs {
			var s sample
			for step := range steps {
				had := false
				for _, size := range c.sizes(step) {
					if p := probability(size); random.Float64() < p {
						s.took(p)
						had = true
					}
				}
				if s.ended(); !had {
					lacks++
				}
			}
			estimate += s.missing()
		}
		if share := estimate / float64(lacks); share < c.low || share > 1.05 {
			t.Errorf("%s: %.0f steps are missing on average, the estimate is %.0f", name, float64(lacks)/runs, estimate/runs)
		}
	}
}

// TestFewSampledStepsAreNotMany: where nearly all steps have several sampled tensors, two steps
// with one small tensor do not mean many steps without.
func TestFewSampledStepsAreNotMany(t *testing.T) {
	var s sample
	for step := range 60 {
		for range map[bool]int{true: 1, false: 4}[step < 2] {
			s.took(1. / 256)
		}
		s.ended()
	}
	if n := s.missing(); n > 2 {
		t.Errorf("%.1f steps are missing", n)
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
	if s := stepsOfEvents(t, p, events); s.Sure != Likely || !strings.Contains(s.Text(), "about 39 more may be missing") {
		t.Error(s.Text())
	}
}
