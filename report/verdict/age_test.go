// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"os"
	"testing"
	"time"
)

const (
	second = 1e9
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
	gib    = 1 << 30
)

// service is a program that runs for long, in simulated time.
type service struct {
	*program
	held []held // by end
}

// held is memory that is freed at a time.
type held struct {
	until   float64
	address uint64
}

func newService(seed uint64) *service {
	p := newProgram(1, seed)
	return &service{program: p}
}

// request takes memory at a line for so long.
func (s *service) request(line, size uint64, lasts float64) {
	s.held = append(s.held, held{s.time + lasts, s.alloc(line, size)})
}

// pass lets time go on until a moment, and frees what is due.
func (s *service) pass(until float64) {
	for i := 0; i < len(s.held); {
		if s.held[i].until <= until {
			s.time = max(s.time, s.held[i].until)
			s.free(s.held[i].address)
			s.held = append(s.held[:i], s.held[i+1:]...)
			continue
		}
		i++
	}
	s.time = max(s.time, until)
}

func TestALeakIsSeenSoonAtEachAgeOfAService(t *testing.T) {
	long := os.Getenv("VRAMPROF_LONG") != ""
	for a, age := range []float64{hour, day, 30 * day, 365 * day} {
		for l, leak := range []float64{0.1, 1, 10} { // GiB per hour
			for b, block := range []uint64{1 << 20, 16 << 20, 256 << 20} {
				for line := range uint64(3) {
					if !long && int(line) != (a+l+b)%3 { // each pair of two values still occurs
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/%d/%d", time.Duration(age), leak, block>>20, 1+line), func(t *testing.T) {
						testLeakOfAService(t, age, leak*gib/hour, block, 1+line)
					})
				}
			}
		}
	}
}

// testLeakOfAService runs requests at line 1, loads weights at line 2, and leaks at a line so many
// bytes per ns after some time.
func testLeakOfAService(t *testing.T, age, rate float64, block, line uint64) {
	s := newService(uint64(age) + block)
	for range 20 {
		s.alloc(2, 64<<20)
	}
	step := max(10*second, age/20000)
	traffic := func() { s.request(1, 1+s.rng.Uint64N(batch), 10*second*(0.5+4*s.rng.Float64())) }
	for s.time < age {
		if s.time > age-6*hour {
			step = 10 * second
		}
		traffic()
		s.pass(s.time + step)
	}
	begin, step := s.time, 10*second
	limit := max(10*minute, 20*float64(block)/rate)
	leaked, seen, next := 0.0, 0.0, 0.0
	for s.time < begin+3*limit {
		for leaked += rate * step; leaked >= float64(block); leaked -= float64(block) {
			s.alloc(line, block)
		}
		traffic()
		s.pass(s.time + step)
		if s.time < next {
			continue
		}
		next = s.time + limit/60
		if v := of(s.snapshot(), line); v.Class == Leaking {
			if seen == 0 {
				seen = s.time - begin
				t.Log(time.Duration(seen), "of", time.Duration(limit), ":", v.Evidence)
			}
			if r := v.Rate; s.time-begin > 2*limit && (r.Low > rate*1.5e9 || r.High < rate*0.66e9) {
				t.Errorf("after %v: %+v, want %.0f", time.Duration(s.time-begin), r, rate*1e9)
			}
		} else if s.time-begin > limit {
			t.Errorf("leaking after %v, %v after %v (%s)", time.Duration(seen), v.Class, time.Duration(s.time-begin), v.Evidence)
			return
		}
	}
	if seen == 0 || seen > limit {
		v := of(s.snapshot(), line)
		t.Errorf("leaking after %v, want %v: now %v (%s)", time.Duration(seen), time.Duration(limit), v.Class, v.Evidence)
	}
}

// TestGrowthUpToAnEarlierLevelIsNoLeakYet: the number of sessions of a service wanders.
func TestGrowthUpToAnEarlierLevelIsNoLeakYet(t *testing.T) {
	for _, c := range []struct {
		again int // blocks that come again
		want  Class
	}{{50, Growing}, {150, Leaking}} {
		p := newProgram(1e8, 1)
		var list []uint64
		more := func(blocks int) {
			p.train(200, func(step int) {
				if step*blocks/200 != (step+1)*blocks/200 {
					list = append(list, p.alloc(1, batch))
				}
			})
		}
		more(100)
		p.train(100, func(int) { p.use(2, batch) })
		p.alloc(1, 55*batch)
		for _, a := range list {
			p.free(a)
		}
		more(c.again)
		if v := of(p.snapshot(), 1); v.Class != c.want {
			t.Errorf("after %d blocks: %v (%s), want %v", c.again, v.Class, v.Evidence, c.want)
		}
	}
}
