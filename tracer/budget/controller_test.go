// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// rates returns how many tensors a process has per second at a time after the begin.
type rates func(at time.Duration) float64

func constant(perSecond float64) rates { return func(time.Duration) float64 { return perSecond } }

// alternating changes between two rates.
func alternating(a, b float64, every time.Duration) rates {
	return func(at time.Duration) float64 {
		if at/every%2 == 0 {
			return a
		}
		return b
	}
}

// wandering takes another rate of 100 to 100,000 every 7 s.
func wandering(seed uint64) rates {
	r := rand.New(rand.NewPCG(seed, 2))
	list := make([]float64, 1000)
	for i := range list {
		list[i] = 100 * pow10(3*r.Float64())
	}
	return func(at time.Duration) float64 { return list[int(at/(7*time.Second))%len(list)] }
}

func pow10(x float64) float64 {
	y := 1.0
	for ; x >= 1; x-- {
		y *= 10
	}
	return y * (1 + 9*x)
}

// outcome is what a simulated session took of the time of its busiest process, and what it would
// have taken with the probe attached all the time.
type outcome struct {
	spent, all, attached float64 // shares of the time
	phases               int
	worst                float64 // share of the busiest minute
}

// simulate attaches and detaches with delays as measured, in ms of simulated time.
func simulate(budget float64, of rates, length time.Duration, seed uint64) (x outcome) {
	const (
		price            = 1300.0 // ns
		attachMS, waitMS = 9, 40
	)
	c := NewController(budget, rand.New(rand.NewPCG(seed, 1)).Float64)
	on, want := true, true
	change, next := -1, 0
	var pending, minute float64
	total := int(length / time.Millisecond)
	for ms := range total {
		cost := 2 * of(time.Duration(ms)*time.Millisecond) / 1000 * price
		x.all += cost
		if on {
			x.attached++
			x.spent += cost
			pending += cost
			minute += cost
		}
		if ms%60_000 == 59_999 {
			x.worst = max(x.worst, minute/60e9)
			minute = 0
		}
		if change == ms {
			on, next = want, ms
			if on {
				x.phases++
			}
		}
		if on != want && change > ms || ms < next {
			continue
		}
		paused, wait := c.Step(uint64(ms)*1e6, map[uint32]time.Duration{7: time.Duration(pending)}, false)
		got := !paused[7]
		pending = 0
		next = ms + int(wait/time.Millisecond)
		if got != want {
			want = got
			change = ms + attachMS
			if !got {
				change = ms + waitMS
			}
		}
	}
	t := float64(length)
	return outcome{x.spent / t, x.all / t, x.attached / float64(total), x.phases, x.worst}
}

func TestTheBudgetIsHeldWithinAFactorAtAllRatesAlsoChangingOnes(t *testing.T) {
	const factor = 1.2
	for name, of := range map[string]rates{
		"100/s": constant(100), "1,000/s": constant(1000), "10,000/s": constant(10_000), "38,000/s": constant(38_000), "100,000/s": constant(100_000),
		"100 and 100,000/s every 10 s":   alternating(100, 100_000, 10*time.Second),
		"100 and 100,000/s every minute": alternating(100, 100_000, time.Minute),
		"steps of 150 ms":                alternating(100_000, 100, 150*time.Millisecond),
		"steps of 30 ms":                 alternating(100_000, 1000, 30*time.Millisecond),
		"another one every 7 s":          wandering(1),
		"another one every 7 s, again":   wandering(2),
	} {
		for _, budget := range []float64{0.001, 0.02, 0.1} {
			for seed := range uint64(3) {
				t.Run(fmt.Sprintf("%s, budget %v, seed %d", name, budget, seed), func(t *testing.T) {
					x := simulate(budget, of, 30*time.Minute, seed)
					t.Logf("%.2f %% of %.2f %% in %d phases, attached %.1f %%; worst minute %.2f %%", 100*x.spent, 100*x.all, x.phases, 100*x.attached, 100*x.worst)
					minute := factor
					if budget < 0.005 { // to attach and detach once is a large part of what a minute has
						minute = 2
					}
					if x.spent > factor*budget || x.worst > minute*budget {
						t.Errorf("it takes more than %v × %v %%, or %v × in a minute", factor, 100*budget, minute)
					}
				})
			}
		}
	}
}

func TestSteadyReportsUseTheBudget(t *testing.T) {
	for _, perSecond := range []float64{10_000, 38_000, 100_000} {
		for _, budget := range []float64{0.005, 0.02} {
			x := simulate(budget, constant(perSecond), 30*time.Minute, 5)
			t.Logf("%.2f %%", 100*x.spent)
			if x.spent < budget/1.2 {
				t.Errorf("%v tensors a second: %.2f %% of %v %% are used", perSecond, 100*x.spent, 100*budget)
			}
		}
	}
}

func TestTheProbeStaysAttachedWhereTheBudgetSuffices(t *testing.T) {
	if x := simulate(0.02, constant(7000), time.Hour, 1); x.attached != 1 || x.phases != 0 {
		t.Errorf("%+v", x)
	}
}

func TestPhasesAreAtLeast100MsAndNotRegular(t *testing.T) {
	c := NewController(0.02, rand.New(rand.NewPCG(1, 2)).Float64)
	var now, changed uint64
	var was bool
	lengths := map[bool]map[uint64]int{true: {}, false: {}}
	for range 20_000 {
		spent := time.Duration(0)
		if was {
			spent = look / 4
		}
		paused, next := c.Step(now, map[uint32]time.Duration{7: spent}, false)
		on := !paused[7]
		if on != was && now > 0 {
			if length := now - changed; was && changed > 0 && length < uint64(leastOn) {
				t.Fatalf("attached for %v", time.Duration(length))
			}
			lengths[was][(now-changed)/uint64(50*time.Millisecond)]++
			changed = now
		}
		was = on
		now += uint64(next)
	}
	for on, by := range lengths {
		if len(by) < 4 {
			t.Errorf("on %v: only %d different lengths", on, len(by))
		}
	}
}

// TestOnlyTheProcessAboveTheBudgetIsPaused: and one that has ended, or whose pid is another's, is
// not.
func TestOnlyTheProcessAboveTheBudgetIsPaused(t *testing.T) {
	c := NewController(0.02, func() float64 { return 0.5 })
	c.Step(0, nil, false)
	spent := map[uint32]time.Duration{7: 0, 8: 0, 9: 9 * time.Millisecond}
	c.Step(uint64(time.Millisecond), spent, false)
	spent[8] = 300 * time.Millisecond
	paused, next := c.Step(uint64(time.Second), spent, false)
	if len(paused) != 1 || !paused[8] || next > look {
		t.Fatalf("paused %v, next in %v", paused, next)
	}
	idle := map[uint32]time.Duration{7: 0, 9: 0}
	if paused, _ := c.Step(uint64(time.Second+look), idle, false); len(paused) != 0 {
		t.Errorf("paused %v", paused)
	}
	idle[8] = 0
	if paused, _ := c.Step(uint64(time.Second+2*look), idle, false); len(paused) != 0 {
		t.Errorf("another process with its pid: paused %v", paused)
	}
}

func TestWhereNoneCanBePausedAloneTheBusiestDecides(t *testing.T) {
	c := NewController(0.02, func() float64 { return 0.5 })
	c.Step(0, nil, true)
	paused, next := c.Step(uint64(time.Second), map[uint32]time.Duration{7: 0, 8: 300 * time.Millisecond}, true)
	if len(paused) != 1 || !paused[All] || next < time.Second {
		t.Fatalf("paused %v, next in %v", paused, next)
	}
	if paused, _ := c.Step(uint64(time.Second)+uint64(next), map[uint32]time.Duration{7: 0}, true); len(paused) != 0 {
		t.Error("still detached")
	}
	for at := 20 * time.Second; at < 30*time.Second; at += look {
		if paused, _ := c.Step(uint64(at), map[uint32]time.Duration{7: 0}, true); len(paused) != 0 {
			t.Fatal("detached for a process that has ended")
		}
	}
}

// TestASmallBudgetIsHeldWithinAMinute: what a job takes until its rate is known is part of it. At
// 100,000 tensors a second, the time of an attach and a detach costs a fifth of 0.1 % of a minute.
func TestASmallBudgetIsHeldWithinAMinute(t *testing.T) {
	for _, perSecond := range []float64{10_000, 100_000} {
		for seed := range uint64(20) {
			x := simulate(0.001, constant(perSecond), time.Minute, seed)
			if x.spent > map[bool]float64{true: 1.3, false: 2}[perSecond < 100_000]*0.001 {
				t.Errorf("%v tensors a second, seed %d: %.3f %% in %d phases", perSecond, seed, 100*x.spent, x.phases)
			}
		}
	}
}
