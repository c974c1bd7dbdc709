// SPDX-License-Identifier: Apache-2.0

package steps

import "math"

// sample sums the sampled tensors of each optimizer's step, and estimates from them how many steps
// have none.
//
// A tensor that is sampled with probability p has the weight g = -ln(1-p). With q for the
// probability that a step has no sample, a step adds on average q*sum(g) to the sum of g(1-p)/p
// over steps with one sample, and q times the products of two different g to that over pairs in
// steps with two. So singles²/squares is the number of steps without a sample if all have the same
// tensors, and less by the Cauchy-Schwarz inequality if they differ. It is Chao's lower bound for
// unseen species, for known probabilities and few tensors.
type sample struct {
	taken uint64 // of the step under way
	odds  float64
	own   float64 // of the first: its odds by its weight
	pair  float64 // odds of the first two, multiplied

	steps, many uint64  // that may have lacked a sample; of these those with two or more
	ones        float64 // of steps with one: how many there are
	singles     float64 // sum of g(1-p)/p
	noise       float64 // sum of its squares
	squares     float64 // sum of g²(1-p)/p, and twice the pairs of steps with two
	always      bool    // a tensor of the step under way cannot be missing
}

// took takes a tensor that is in the sample with probability p.
func (s *sample) took(p float64) {
	s.taken++
	if p >= 1 {
		s.always = true
		return
	}
	weight := -math.Log1p(-p)
	odds := weight * (1 - p) / p
	switch s.taken {
	case 1:
		s.odds, s.own = odds, odds*weight
	case 2:
		s.pair = s.odds * odds
	}
}

// ended ends the step under way. One with a tensor that cannot be missing shows nothing of others.
func (s *sample) ended() {
	if !s.always && s.taken > 0 {
		s.steps++
		switch s.taken {
		case 1:
			s.ones++
			s.singles += s.odds
			s.noise += s.odds * s.odds
			s.squares += s.own
		case 2:
			s.squares += 2 * s.pair
		}
		if s.taken > 1 {
			s.many++
		}
	}
	s.taken, s.always = 0, false
}

// half of a step: where less is expected to be missing, none is.
const half = 0.5

// missing estimates how many steps have no sampled tensor of their optimizer. Where steps have
// several tensors, one more pair keeps a few steps with one from meaning many without.
func (s *sample) missing() float64 {
	if s.ones == 0 {
		return 0
	}
	pair := s.noise / s.ones * float64(s.many) / float64(s.steps)
	return max(s.singles*s.singles-s.noise, 0) / (s.squares + 2*pair)
}

// mayLack reports whether one more step may have none, where so many are known.
func (s *sample) mayLack(known uint64) bool { return s.ones > 0 && float64(known) <= 3*s.missing() }

// beyond returns how many steps are missing where so many are known nevertheless: none if these are
// most of what is expected.
func (s *sample) beyond(known uint64) uint64 {
	n := s.missing()
	if n < half || n <= 2*float64(known) {
		return 0
	}
	return max(uint64(math.Round(min(n, 1<<53)))-known, 1)
}

// end is where a step may have ended.
type end struct {
	at     int // an index into the runs of the step under way
	passes int // its backward passes until then
}

// leastUsual is how many steps show how many backward passes a step has.
const leastUsual = 4

// mayEnd notes that a forward pass follows a backward pass.
func (x *segmenter) mayEnd() {
	if len(x.ends) < maxRuns {
		x.ends = append(x.ends, end{len(x.open), x.passes})
	}
}

// closeUnseen ends the steps before the one under way of which no sampled tensor shows the
// optimizer: steps have as many backward passes as nearly all steps before, and what is under way
// has several times as many.
func (x *segmenter) closeUnseen() {
	usual, _ := x.usual()
	if usual == 0 || x.passes <= usual || x.passes%usual != 0 || x.count < leastUsual || !x.isRegular() {
		return
	}
	all, closed := x.passes, 0 // closed: backward passes of what is closed
	for from, ends := 0, x.ends; len(ends) > 0 && all-closed > usual; ends = ends[1:] {
		if ends[0].passes-closed != usual {
			continue
		}
		count := x.count
		x.passes, x.marked = usual, false
		x.close(ends[0].at - from)
		closed, from = ends[0].passes, ends[0].at
		x.passes = all - closed
		x.unseen += x.count - count
	}
}
