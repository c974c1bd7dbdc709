// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/vramprof/vramprof/internal/allocsim"
)

const mib = 1 << 20

// Replay returns the outcome of a scenario. Capacity is what the asked GPU has for PyTorch, in
// bytes; 0: none was asked for. Total is the memory of that GPU, for a memory fraction; 0: that of
// the trace.
func Replay(t *allocsim.Trace, s Scenario, capacity, total uint64) (Outcome, error) {
	out := Outcome{Scenario: s, Trace: t, FailedAt: -1}
	if s.Change != nil {
		changed, err := s.Change(t)
		if err != nil {
			return out, fmt.Errorf("%s: %w", s.Name, err)
		}
		out.Trace = changed
	}
	p := player{trace: out.Trace, settings: s.Settings, total: total}
	if err := p.play(&out, capacity); err != nil {
		return out, fmt.Errorf("%s: %w", s.Name, err)
	}
	if err := p.vary(&out); err != nil || s.High == nil {
		return out, err
	}
	high := Outcome{Scenario: s, Trace: s.High, FailedAt: -1}
	p.trace = s.High
	if err := p.play(&high, capacity); err != nil {
		return out, fmt.Errorf("%s: %w", s.Name, err)
	}
	if err := p.vary(&high); err != nil {
		return out, err
	}
	return out.upTo(high).unsure(capacity), nil
}

// upTo returns the outcome of a program that lies between two.
func (out Outcome) upTo(high Outcome) Outcome {
	both := high
	if high.FailedAt < 0 {
		both = out
	}
	both.Reserved.join(out.Reserved, high.Reserved)
	both.Allocated.join(out.Allocated, high.Allocated)
	both.RunsIn.join(out.RunsIn, high.RunsIn)
	both.Stuck, both.Grain, both.Retries = max(out.Stuck, high.Stuck), max(out.Grain, high.Grain), max(out.Retries, high.Retries)
	both.Orders, both.Failures = out.Orders+high.Orders, out.Failures+high.Failures
	if out.Verdict != high.Verdict {
		both.Verdict = Depends
	}
	return both
}

type player struct {
	trace    *allocsim.Trace
	settings allocsim.Settings
	total    uint64
}

func (p *player) run(order allocsim.Order, capacity uint64) (allocsim.Result, error) {
	return allocsim.Run(p.trace, p.settings, allocsim.Options{Order: order, Capacity: capacity, Total: p.total})
}

// answer is what one order of addresses gives.
type answer struct {
	free, limited allocsim.Result // without a limit, and on the asked GPU
	least         uint64
	matters       bool // whether another order can answer otherwise
}

// play answers for rising addresses, and for all orders if that depends on them.
func (p *player) play(out *Outcome, capacity uint64) error {
	first, err := p.answer(allocsim.Rising, capacity, 0, &out.Grain)
	if err != nil {
		return err
	}
	answers := []answer{first}
	if first.matters {
		more, err := p.others(capacity, first.least)
		if err != nil {
			return err
		}
		answers = append(answers, more...)
	}
	out.sum(answers, capacity)
	return nil
}

// others answers for the other orders, as many at a time as there are processors.
func (p *player) others(capacity, guess uint64) ([]answer, error) {
	answers := make([]answer, allocsim.Orders-1)
	errs := make([]error, len(answers))
	var wait sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range answers {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			var grain uint64
			answers[i], errs[i] = p.answer(allocsim.Order(i+1), capacity, guess, &grain)
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (p *player) answer(order allocsim.Order, capacity, guess uint64, grain *uint64) (a answer, err error) {
	if a.free, err = p.run(order, 0); err != nil {
		return a, err
	}
	if a.free.Failed >= 0 { // at a memory fraction, or what no GPU has
		return a, fmt.Errorf("operation %d runs out of memory on every GPU", a.free.Failed)
	}
	a.matters = a.free.OrderMatters
	if capacity > 0 {
		if a.limited, err = p.run(order, capacity); err != nil {
			return a, err
		}
		a.matters = a.matters || a.limited.OrderMatters
		if capacity < p.had() {
			a.limited.Failed = 0
		}
	}
	s := search{player: p, order: order, low: max(down(a.free.PeakAllocated), p.had()), high: a.free.PeakReserved}
	*grain = s.setGrain()
	a.least, err = s.least(guess)
	a.matters = a.matters || s.matters
	return a, err
}

// had is what the allocator had reserved before the trace, in bytes: the history cannot be replayed
// with less.
func (p *player) had() (bytes uint64) {
	for i := range p.trace.Start {
		for _, x := range p.trace.Start[i].Parts {
			if x.State != allocsim.PartUnmapped {
				bytes += x.Size
			}
		}
	}
	return bytes
}

func down(bytes uint64) uint64 { return bytes / (2 * mib) * (2 * mib) }

// search looks for the least capacity at which an order does not run out of memory. More memory can
// fail where less suffices, because the allocator gives its cache back at other times; so what lies
// little above the found one is tried as well.
type search struct {
	*player
	order     allocsim.Order
	low, high uint64 // too little, or the least that there can be; and enough
	grain     uint64
	matters   bool
}

// setGrain makes a figure as precise as PyTorch's segments, or as 0.2 % of large ones.
func (s *search) setGrain() uint64 {
	s.grain = max(down(s.high/512), 2*mib)
	return s.grain
}

func (s *search) enough(capacity uint64) (bool, error) {
	r, err := s.run(s.order, capacity)
	s.matters = s.matters || r.OrderMatters
	return err == nil && r.Failed < 0, err
}

// least returns the capacity, near the guess if there is one.
func (s *search) least(guess uint64) (uint64, error) {
	if guess > s.low && guess < s.high {
		if err := s.near(guess); err != nil {
			return 0, err
		}
	} else if ok, err := s.enough(max(s.low, 2*mib)); err != nil || ok {
		return max(s.low, 2*mib), err
	}
	if err := s.bisect(); err != nil {
		return 0, err
	}
	for _, more := range [...]uint64{1, 2, 4} {
		at, high := s.high+more*s.grain, s.high
		ok, err := s.enough(at)
		if err != nil {
			return 0, err
		}
		if !ok {
			s.low, s.high = at, at+s.grain
			for {
				if ok, err = s.enough(s.high); err != nil {
					return 0, err
				} else if ok {
					return s.high, nil
				}
				s.high += max(s.grain, down(high/64))
			}
		}
	}
	return s.high, nil
}

// near narrows the search to twice the distances from a guess.
func (s *search) near(guess uint64) error {
	ok, err := s.enough(guess)
	for step := s.grain; err == nil; step *= 2 {
		if ok {
			s.high = min(s.high, guess)
			if guess < s.low+step {
				return nil
			}
			guess -= step
		} else {
			s.low = max(s.low, guess)
			if guess+step > s.high {
				return nil
			}
			guess += step
		}
		var now bool
		if now, err = s.enough(guess); now != ok {
			if now {
				s.high = guess
			} else {
				s.low = guess
			}
			return err
		}
	}
	return err
}

func (s *search) bisect() error {
	for s.high > s.low+s.grain {
		middle := s.low + (s.high-s.low)/2/(2*mib)*(2*mib)
		if middle <= s.low {
			middle = s.low + 2*mib
		}
		ok, err := s.enough(middle)
		if err != nil {
			return err
		}
		if ok {
			s.high = middle
		} else {
			s.low = middle
		}
	}
	return nil
}

func (out *Outcome) sum(answers []answer, capacity uint64) {
	out.Orders = len(answers)
	first := &answers[0]
	out.Reserved = Range{first.free.PeakReserved, first.free.PeakReserved}
	out.RunsIn = Range{first.least, first.least}
	out.Allocated = Range{first.free.PeakAllocated, first.free.PeakAllocated}
	for i := range answers {
		a := &answers[i]
		out.Reserved.add(a.free.PeakReserved)
		out.RunsIn.add(a.least)
		out.Stuck = max(out.Stuck, a.free.AtPeak.Stuck)
		out.Allocated.add(a.free.PeakAllocated)
		if capacity == 0 {
			continue
		}
		out.Retries = max(out.Retries, a.limited.Retries)
		if at := a.limited.Failed; at >= 0 {
			out.Failures++
			if out.FailedAt < 0 || at < out.FailedAt {
				out.FailedAt = at
			}
		}
	}
	switch {
	case capacity == 0:
	case out.Failures == 0:
		out.Verdict = Fits
	case out.Failures == len(answers):
		out.Verdict = OutOfMemory
	default:
		out.Verdict = Depends
	}
}
