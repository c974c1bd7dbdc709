// SPDX-License-Identifier: Apache-2.0

package steps

import "math"

// sample counts the sampled tensors of each optimizer's step, and says from them how many steps
// have none.
type sample struct {
	taken  uint64 // of the step under way
	always bool   // one of them cannot be missing
	ones   uint64 // steps with one
	twos   uint64 // steps with two
}

func (s *sample) took(always bool) {
	s.taken++
	s.always = s.always || always
}

// ended counts the step under way.
func (s *sample) ended() {
	if !s.always {
		switch s.taken {
		case 1:
			s.ones++
		case 2:
			s.twos++
		}
	}
	s.taken, s.always = 0, false
}

// half of a step: where less is expected to be missing, none is.
const half = 0.5

// missing estimates how many steps have no sampled tensor of their optimizer, by the numbers of
// those with one and with two. This is Chao's lower bound for unseen species.
func (s *sample) missing() float64 {
	ones := float64(s.ones)
	return max(ones*(ones-1), 0) / (2 * (float64(s.twos) + 1))
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
