// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"
)

// TestSamplesStayWithinTheLimit: a program that gives out 100,000 tensors a second of a size that
// is always sampled gets the stacks of few of them, and its totals stay exact; one that gives out
// fewer than the limit gets the stacks of all.
func TestSamplesStayWithinTheLimit(t *testing.T) {
	const limit, perSecond, mib, windowsSaved = 4000, 200_000, 1 << 20, 1100 * time.Millisecond
	seconds := 3
	if testing.Short() || os.Getenv("VRAMPROF_LONG") == "" {
		seconds = 1
	}
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(func(c *Config) { c.Sample, c.SampleLimit = mib, limit })
	slow := fmt.Sprintf("rate 1 1 %d %d", limit, mib) // half of them allocations
	p := m.follow("2.6", nil, "alloc a 1M", "free a", "wait", slow, "totals", "wait", fmt.Sprintf("rate 2 %d %d %d", seconds, perSecond, mib), "totals", "wait", slow, "totals", "wait")
	stacks, allocs := uint64(0), uint64(1)
	stop := func(what string) (sampled, given uint64, halvings uint8, seconds float64) {
		time.Sleep(windowsSaved) // until what was spent before is saved again
		stacks = m.snapshot().Stats.Stacks
		p.next()
		events, took := p.rate()
		totals := p.totals()
		s := m.snapshot()
		checkTensors(t, what, s, p.pid(), totals, false)
		checkLosses(t, s)
		x := tensorsOf(t, s, p.pid())[0]
		given = events / 2
		if x.AllocObjects != allocs+given {
			t.Errorf("%s: the books have %d allocations, the program %d", what, x.AllocObjects, allocs+given)
		}
		sampled = s.Stats.Stacks - stacks
		allocs = x.AllocObjects
		t.Logf("%s: %d of %d sampled in %v", what, sampled, given, took)
		return sampled, given, x.Halvings, took.Seconds()
	}
	if sampled, given, halvings, _ := stop("slow"); sampled != given || halvings != 0 {
		t.Errorf("%d of %d are sampled, with %d halvings: want all", sampled, given, halvings)
	}
	sampled, given, halvings, took := stop("fast")
	// What was saved, the limit, and what each halving allows. A machine that is slowed down gives
	// out fewer tensors.
	most := limit * (1 + took + float64(halvings)/10)
	least := min(limit/3*took, float64(given))
	if float64(sampled) > most || float64(sampled) < least || math.Ldexp(most, int(halvings)) < float64(given) {
		t.Errorf("%d of %d are sampled, with %d halvings: want %.0f to %.0f", sampled, given, halvings, least, most)
	}
	if sampled, given, _, _ := stop("slow again"); sampled != given {
		t.Errorf("after a pause %d of %d are sampled, want all", sampled, given)
	}
	p.end()
}

// TestARareSizeKeepsItsStacksBesideManyOthers: sizes share the limit. A tensor that is kept now and
// then has each of its stacks, although tensors of two other sizes need 15 times the limit.
func TestARareSizeKeepsItsStacksBesideManyOthers(t *testing.T) {
	const kept = 60
	m := newMachine(t, 1, "FAKECUDA_MEMORY=68719476736")
	m.keepTorch("2.6")
	m.trace(func(c *Config) { c.Sample, c.SampleLimit = 1<<20, 4000 })
	p := m.follow("2.6", nil, "rate 1 0.3 120000 8000000", "wait", fmt.Sprintf("repeat %d", kept), "rate 1 0.02 120000 8000000", "rate 1 0.02 120000 12000000",
		"live 1 1600000", "end", "print done", "totals", "wait")
	p.rate()
	p.next()
	for range 2 * kept {
		p.rate()
	}
	p.expect("done")
	totals := p.totals()
	s := m.snapshot()
	checkTensors(t, "at the end", s, p.pid(), totals, false)
	if x := tensorsOf(t, s, p.pid())[0]; x.Halvings < 3 {
		t.Errorf("the rate was halved %d times: the others did not need more than the limit", x.Halvings)
	}
	if x := tensorsOf(t, s, p.pid())[0]; x.LiveObjects != kept || x.Sampled != kept {
		t.Errorf("%d of %d live tensors are sampled, want all %d", x.Sampled, x.LiveObjects, kept)
	}
	p.end()
}
