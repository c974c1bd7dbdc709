// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// healthy are services that leak nothing. A cycle is the longest time after which they repeat what
// they do: before its end, growth in it cannot be told from a leak.
var healthy = []struct {
	name  string
	cycle float64
	run   func(s *service, until func(float64) bool)
}{
	{"requests", minute, func(s *service, until func(float64) bool) {
		for until(s.random(30 * second)) {
			s.request(1, 1+s.rng.Uint64N(batch), s.random(20*second))
		}
	}},
	{"requests of a few seconds to hours", hour, func(s *service, until func(float64) bool) {
		for until(s.random(60 * second)) {
			s.request(1, 1+s.rng.Uint64N(batch), 2*minute*math.Exp(1.2*s.rng.NormFloat64()))
		}
	}},
	{"sessions of an hour", 4 * hour, func(s *service, until func(float64) bool) {
		for until(s.random(60 * second)) {
			s.request(1, batch, s.random(hour))
		}
	}},
	{"few sessions of a day", 5 * day, func(s *service, until func(float64) bool) {
		for until(s.random(30 * minute)) {
			s.request(1, batch, s.random(day))
		}
	}},
	{"day and night", day, func(s *service, until func(float64) bool) {
		for until(s.random(40 * second * (1.05 + math.Cos(2*math.Pi*s.time/day)) * 2)) {
			s.request(1, batch, s.random(20*minute))
		}
	}},
	{"day and night, and weekends", 7 * day, func(s *service, until func(float64) bool) {
		for until(s.random(60 * second * (1.05 + math.Cos(2*math.Pi*s.time/day)) * 2 * (1 + math.Floor(math.Mod(s.time, 7*day)/day/5)))) {
			s.request(1, batch, s.random(10*minute))
		}
	}},
	{"idle at night", day, func(s *service, until func(float64) bool) {
		for until(s.random(40 * second)) {
			if math.Mod(s.time, day) > 16*hour && !until(8*hour) {
				return
			}
			s.request(1, 1+s.rng.Uint64N(batch), s.random(5*minute))
		}
	}},
	{"a checkpoint each hour", hour, func(s *service, until func(float64) bool) {
		for until(minute) {
			s.request(1, batch, 30*second)
			if math.Mod(s.time, hour) < minute {
				for range 50 {
					s.request(2, batch, 5*minute)
					until(3 * second)
				}
			}
		}
	}},
	{"an evaluation each three hours, whose outputs are kept until its end", 3 * hour, func(s *service, until func(float64) bool) {
		for until(2 * minute) {
			s.request(1, batch, 30*second)
			if at := math.Mod(s.time, 3*hour); at > 140*minute {
				for range 8 {
					s.request(2, 1<<20, 3*hour-at)
				}
			}
		}
	}},
	{"garbage that is collected now and then", 6 * hour, func(s *service, until func(float64) bool) {
		for until(s.random(minute)) {
			s.request(1, 1<<20, 4*hour-math.Mod(s.time, 4*hour)+s.random(minute))
		}
	}},
	{"a cache that is full", hour, func(s *service, until func(float64) bool) {
		lru := newLRU(s.program, 100)
		for until(s.random(20 * second)) {
			lru.get(s.rng.IntN(40) * s.rng.IntN(40))
		}
	}},
	{"a replay buffer", 2 * hour, func(s *service, until func(float64) bool) {
		f := fifo{p: s.program, line: 1, depth: 200}
		for until(30 * second) {
			f.put(1 + s.rng.Uint64N(batch))
		}
	}},
	{"a model that is replaced now and then", 12 * hour, func(s *service, until func(float64) bool) {
		for {
			size, lasts := 1+s.rng.Uint64N(64<<20), s.random(8*hour)
			for range 20 {
				s.request(1, size, lasts)
				until(10 * second)
			}
			for left := lasts; left > 0; left -= 2 * minute {
				if !until(2 * minute) {
					return
				}
				s.request(2, batch, 30*second)
			}
		}
	}},
	{"a workspace as large as the largest batch", day, func(s *service, until func(float64) bool) {
		held, room := s.alloc(1, 1), uint64(1)
		for until(s.random(minute)) {
			s.request(2, batch, 30*second)
			if need := uint64(1e8 * math.Exp(s.rng.NormFloat64()/2)); need > room {
				s.free(held)
				held, room = s.alloc(1, need), need
			}
		}
	}},
	{"jobs at night", day, func(s *service, until func(float64) bool) {
		for until(minute) {
			s.request(1, batch, s.random(2*minute))
			if at := math.Mod(s.time, day); at > 22*hour {
				s.request(2, batch, min(s.random(2*hour), day-at))
			}
		}
	}},
}

// random returns a time of a mean, as independent events have between them.
func (s *service) random(mean float64) float64 { return s.rng.ExpFloat64() * mean }

// TestNoHealthyServiceLeaksInAMonth: with VRAMPROF_MONTHS, so many months of each, judged more
// often.
func TestNoHealthyServiceLeaksInAMonth(t *testing.T) {
	seeds, every := 1, 40*minute
	if n, err := strconv.Atoi(os.Getenv("VRAMPROF_MONTHS")); err == nil {
		seeds, every = n, 10*minute
	}
	for _, x := range healthy {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds {
				alarms, judged, next := 0, 0, 0.0
				s := newService(uint64(seed))
				x.run(s, func(more float64) bool {
					s.pass(s.time + more)
					if s.time < next {
						return s.time < 30*day
					}
					next = s.time + every*(0.5+s.rng.Float64())
					judged++
					verdicts := Judge(s.snapshot(), lines{})
					if i := slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Class == Leaking }); i >= 0 {
						if alarms++; s.time > 1.5*x.cycle {
							t.Errorf("seed %d, after %v: line %d leaks (%s), horizon %d", seed, time.Duration(s.time), verdicts[i].Line.Line, verdicts[i].Evidence, verdicts[i].horizon)
						}
					}
					return s.time < 30*day
				})
				t.Logf("seed %d: %d of %d verdicts are alarms", seed, alarms, judged)
			}
		})
	}
}
