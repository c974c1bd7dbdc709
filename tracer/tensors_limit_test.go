// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
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
	// What was saved, the limit, and what each halving allows.
	most := limit * (1 + took + float64(halvings)/10)
	least := limit / 3 * took
	if halvings < 4 || float64(sampled) > most || float64(sampled) < least {
		t.Errorf("%d of %d are sampled, with %d halvings: want %.0f to %.0f", sampled, given, halvings, least, most)
	}
	if sampled, given, _, _ := stop("slow again"); sampled != given {
		t.Errorf("after a pause %d of %d are sampled, want all", sampled, given)
	}
	p.end()
}
