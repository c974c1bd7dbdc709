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

	// mostMeans limits a random time to so many times its mean.
	mostMeans = 2
)

// Controller decides when the probe on PyTorch's reports is attached, so that it takes at most a share of the time
// of each thread. Where the budget suffices for all reports it stays attached. Else it is attached at random
// times for a random duration: a training whose steps are as long as the phases of a regular sample would
// show the same part of each step.
//
// Controller has no clock and no lock: the goroutine that attaches and detaches calls it.
type Controller struct {
	budget  float64        // share of a thread's time
	random  func() float64 // in [0, 1)
	credit  map[uint32]float64
	started bool
	now     uint64
	on      bool
	until   uint64 // attached at least, or detached
}

// NewController returns a Controller that begins with the probe attached. budget is above 0 and at most 1. random
// returns uniform numbers in [0, 1), as rand.Float64.
func NewController(budget float64, random func() float64) *Controller {
	return &Controller{budget: budget, random: random, credit: map[uint32]float64{}, on: true}
}

// Step takes the time at which it is called, in ns, and how long the reports of each process that may report have
// delayed it since the call before, by pid. It returns whether the probe is to be attached, and when to call
// it again: at the latest then, and at once when the probe was attached or detached.
func (c *Controller) Step(now uint64, spent map[uint32]time.Duration) (on bool, next time.Duration) {
	if !c.started {
		c.started, c.now, c.until = true, now, now+uint64(c.onFor())
	}
	passed := float64(now - min(c.now, now))
	c.now = max(now, c.now)
	c.earn(passed, spent)
	least := c.least()
	switch {
	case c.on && c.now >= c.until && least < 0:
		c.on = false
		c.until = c.now + uint64(c.offFor(-least))
	case !c.on && c.now >= c.until:
		c.on = true
		c.until = c.now + uint64(c.onFor())
	}
	if c.on {
		return true, look
	}
	return false, time.Duration(c.until - c.now)
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

// least returns the credit of the process that has spent most, in ns.
func (c *Controller) least() float64 {
	least := c.budget * float64(saved)
	for _, credit := range c.credit {
		least = min(least, credit)
	}
	return least
}

// onFor returns for how long the probe stays attached at least.
func (c *Controller) onFor() time.Duration {
	return leastOn + time.Duration(c.exponential()*float64(meanMore))
}

// offFor returns for how long the probe stays detached until a debt is paid on average. What is paid too early
// or too late is part of the next debt.
func (c *Controller) offFor(debt float64) time.Duration {
	mean := debt / c.budget
	return time.Duration(min(max(mean*c.exponential(), float64(leastOff)), float64(mostOff)))
}

// exponential returns a random number with the distribution of the times between independent events, and mean 1
// but for what mostMeans cuts off.
func (c *Controller) exponential() float64 {
	return min(-math.Log1p(-c.random()), mostMeans)
}
