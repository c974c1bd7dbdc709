// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"maps"
	"math"
	"time"
)

const (
	look     = 50 * time.Millisecond  // between steps while the probe is attached
	leastOn  = 100 * time.Millisecond // attached for, so that whole steps of a training are seen
	meanMore = 100 * time.Millisecond // attached for longer than that, on average
	leastOff = 50 * time.Millisecond
	mostOff  = 5 * time.Minute // then the rate may be another one

	// saved is for how long a budget is saved that was not used: a burst may use it at once.
	saved = 2 * time.Second

	// repaid is in what time a budget repays what may be spent while the probe is attached once. It
	// ends such a time before leastOn only with budgets below 0.5 %, which a session of some
	// minutes would otherwise exceed.
	repaid    = 20 * time.Second
	leastLook = 5 * time.Millisecond

	// long is a pause that is longer than most steps. Less chance suffices there, with which the
	// budget is also held in sessions of a minute.
	long = 5 * time.Second

	// mostMeans limits a random time to so many times its mean.
	mostMeans = 2
)

// All stands for all processes where none can be paused alone.
const All = 0

// Controller decides from which processes the probe on PyTorch's reports is detached, so that it
// takes at most a share of the time of each thread. A process for which the budget suffices stays
// traced. Of another one the probe is attached at random times for a random duration: a training
// whose steps are as long as the phases of a regular sample would show the same part of each step.
//
// Controller has no clock and no lock: the goroutine that attaches and detaches calls it.
type Controller struct {
	budget  float64        // share of a thread's time
	random  func() float64 // in [0, 1)
	credit  map[uint32]float64
	phases  map[uint32]*phase // by process, or of All
	started bool
	now     uint64
}

// phase is whether the probe is attached.
type phase struct {
	paused bool
	again  bool    // it was paused before
	until  uint64  // when it ends at the earliest
	left   float64 // ns that may be spent in it
}

// NewController returns a Controller that begins with the probe attached. budget is above 0 and at
// most 1. random returns uniform numbers in [0, 1), as rand.Float64.
func NewController(budget float64, random func() float64) *Controller {
	return &Controller{budget: budget, random: random, credit: map[uint32]float64{}, phases: map[uint32]*phase{}}
}

// Step takes the time at which it is called, in ns, and how long the reports of each process that
// may report have delayed it since the call before, by pid. It returns the processes from which the
// probe is to be detached, and when to call it again: at the latest then, and at once when a probe
// was attached or detached. With together these are none or All, and the process that has spent
// most decides.
func (c *Controller) Step(now uint64, spent map[uint32]time.Duration, together bool) (paused map[uint32]bool, next time.Duration) {
	passed := float64(now - min(c.now, now))
	if !c.started {
		c.started, passed = true, 0
	}
	c.now = max(now, c.now)
	c.earn(passed, spent)
	credit, taken := c.credit, spent
	if together {
		credit, taken = c.least(spent)
	}
	maps.DeleteFunc(c.phases, func(pid uint32, _ *phase) bool {
		_, there := credit[pid]
		return !there
	})
	paused, next = map[uint32]bool{}, look
	for pid, has := range credit {
		p := c.phases[pid]
		if p == nil {
			p = &phase{}
			c.phases[pid] = p
			c.begin(p)
		}
		p.left -= float64(taken[pid])
		c.change(p, has)
		if p.paused {
			paused[pid] = true
			next = min(next, time.Duration(p.until-c.now))
		} else if p.again {
			next = min(next, max(time.Duration(c.budget*float64(repaid)/4), leastLook))
		}
	}
	if len(paused) == len(credit) && len(paused) > 0 { // nothing is to be looked at
		next = mostOff
		for _, p := range c.phases {
			next = min(next, time.Duration(p.until-c.now))
		}
	}
	return paused, next
}

// change ends a phase of a process that has a credit.
func (c *Controller) change(p *phase, credit float64) {
	switch {
	case p.paused && c.now >= p.until:
		c.begin(p)
	case !p.paused && credit < 0 && (c.now >= p.until || p.left < 0):
		p.paused, p.again = true, true
		p.until = c.now + uint64(c.offFor(-credit))
	}
}

// begin begins a phase in which the probe is attached.
func (c *Controller) begin(p *phase) {
	p.paused, p.left = false, c.budget*float64(repaid)
	p.until = c.now + uint64(c.onFor())
}

// earn adds to the credit of each process what the budget gives it, and takes what it has spent.
func (c *Controller) earn(passed float64, spent map[uint32]time.Duration) {
	maps.DeleteFunc(c.credit, func(pid uint32, _ float64) bool {
		_, there := spent[pid]
		return !there
	})
	most := c.budget * float64(saved)
	for pid, t := range spent {
		c.credit[pid] = min(c.credit[pid]+c.budget*passed-float64(t), most)
	}
}

// least returns the credit of the process that has spent most, in ns, and what the one took that
// has spent most now, as those of All.
func (c *Controller) least(spent map[uint32]time.Duration) (credit map[uint32]float64, taken map[uint32]time.Duration) {
	least, most := c.budget*float64(saved), time.Duration(0)
	for pid, has := range c.credit {
		least, most = min(least, has), max(most, spent[pid])
	}
	return map[uint32]float64{All: least}, map[uint32]time.Duration{All: most}
}

// onFor returns for how long the probe stays attached at least.
func (c *Controller) onFor() time.Duration {
	return leastOn + time.Duration(c.exponential()*float64(meanMore))
}

// offFor returns for how long the probe stays detached until a debt is paid on average. What is
// paid too early or too late is part of the next debt.
func (c *Controller) offFor(debt float64) time.Duration {
	mean := debt / c.budget
	if mean > float64(long) {
		return min(time.Duration(mean*(0.75+c.random()/2)), mostOff)
	}
	return time.Duration(min(max(mean*c.exponential(), float64(leastOff)), float64(mostOff)))
}

// exponential returns a random number with the distribution of the times between independent
// events, and mean 1 but for what mostMeans cuts off.
func (c *Controller) exponential() float64 {
	return min(-math.Log1p(-c.random()), mostMeans)
}
