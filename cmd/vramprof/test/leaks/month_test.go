// SPDX-License-Identifier: Apache-2.0

package leaks

import (
	"cmp"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	day        = uint64(24 * time.Hour)
	month      = 30 * day
	round      = 3 * day // mean time of a half of the excerpt
	judgeEvery = day / 4 // mean time between verdicts
	mostAlarms = 0.01    // of all verdicts
	mostOfSite = 200     // most allocations of a site that are repeated, on average
)

// excerpt is what the programs of a batch allocated and freed, in the order of the allocations.
type excerpt struct {
	lives  []lifetime
	latest map[place]int // index of lives
	books  *ledger.Ledger
}

// lifetime is an allocation, or a tensor in the sample.
type lifetime struct {
	ledger.Allocation
	freed uint64 // ns; 0: not
}

type place struct {
	process uint32
	space   ledger.Space
	address uint64
}

// newExcerpt returns books that a tracer tells as it tells a capture.
func newExcerpt() *excerpt {
	r := &excerpt{latest: map[place]int{}, books: ledger.New(ledger.Options{})}
	r.books.Observe(r)
	return r
}

func (r *excerpt) Apply(e *ledger.Event) { r.books.Apply(e) }

func (r *excerpt) Tell(in ledger.Input) {
	if _, is := in.(ledger.BlockList); !is { // it is the tracer's ledger's
		r.books.Tell(in)
	}
}

func placeOf(a *ledger.Allocation) place { return place{a.Process, a.Space, a.Address} }

func (r *excerpt) Allocated(a ledger.Allocation, time uint64) {
	if i, known := r.latest[placeOf(&a)]; known && r.lives[i].Time == a.Time {
		r.lives[i].freed = 0
		return
	}
	r.latest[placeOf(&a)] = len(r.lives)
	r.lives = append(r.lives, lifetime{Allocation: a})
}

func (r *excerpt) Freed(a ledger.Allocation, time uint64) {
	if i, known := r.latest[placeOf(&a)]; known {
		r.lives[i].freed = time
	}
}

func (r *excerpt) Moved(a ledger.Allocation) {
	if i, known := r.latest[placeOf(&a)]; known {
		r.lives[i].Device = a.Device
	}
}

func (r *excerpt) Began(process, pid uint32)                  {}
func (r *excerpt) Mapped(m ledger.Mapping, time uint64)       {}
func (r *excerpt) Unmapped(m ledger.Mapping, time uint64)     {}
func (r *excerpt) Unmatched(a ledger.Allocation, time uint64) {}

// step is an allocation or a free of a program.
type step struct {
	time uint64
	life int // index of lives
	free bool
}

// replay is a program that runs for a month in simulated time.
type replay struct {
	*observed
	lives  []lifetime
	steps  []step // by time
	begin  uint64 // of the excerpt
	end    uint64
	books  *ledger.Ledger
	totals map[totalsKey][]ledger.ClassTotals
	rng    *rand.Rand
	copies []int // of each of lives: how often it was allocated
}

// stacks has the stacks of an observation, each made once.
type stacks struct {
	*observation
	made     map[uint64][]callstack.Frame
	mappings map[string]*callstack.Mapping
}

func (s stacks) Stack(id uint64) []callstack.Frame {
	list, known := s.made[id]
	if !known {
		list = s.observation.Stack(id)
		for i := range list {
			if m := list[i].Mapping; m != nil && s.mappings[m.Path] == nil {
				s.mappings[m.Path] = m
			} else if m != nil {
				list[i].Mapping = s.mappings[m.Path]
			}
		}
		s.made[id] = list
	}
	return list
}

type totalsKey struct {
	pid    uint32
	device int32
}

// testMonths judges a month of each program that does not leak. Real are its allocations in the ten
// seconds after the attach: their lines, sizes, order and lifetimes relative to each other, as the
// tracer booked them. All else is a rule, the same for all programs: the first half of that, slowed
// down to three days, comes once, the second half again and again, each time at another pace, until
// the month is over. What the excerpt does not free lives until its copy of the next round is
// there. Of a line that allocates more often, a random sample of 200 is repeated, and sampled
// tensors count as if they were all. So nothing is tested that the program does in a month and not
// in ten seconds. Levels repeat from the second round on, and are judged after one and a half of
// such. Since each run records anew, a few verdicts may be wrong.
func testMonths(t *testing.T, seen []*observation) {
	var programs, judged, alarms atomic.Int64
	t.Run("each", func(t *testing.T) {
		for _, o := range seen {
			for i := range o.Programs {
				if p := &o.Programs[i]; !p.Leaking {
					t.Run(p.Name, func(t *testing.T) {
						t.Parallel()
						n, wrong := monthOf(p, o.excerpt, o.Moments[0].Snapshot.End).run(t, o)
						programs.Add(1)
						judged.Add(int64(n))
						alarms.Add(int64(wrong))
					})
				}
			}
		}
	})
	t.Logf("%d of %d verdicts are alarms", alarms.Load(), judged.Load())
	if judged.Load() < 20*programs.Load() {
		t.Errorf("%d months were judged only %d times", programs.Load(), judged.Load())
	}
	if share := float64(alarms.Load()) / float64(judged.Load()); share > mostAlarms {
		t.Errorf("%.1f %% of verdicts are false alarms, want %.1f %% at most", 100*share, 100*mostAlarms)
	}
}

// monthOf prepares the month of a program from what was recorded of it until a time.
func monthOf(p *observed, r *excerpt, until uint64) *replay {
	m := &replay{observed: p, end: until, books: ledger.New(ledger.Options{}), totals: map[totalsKey][]ledger.ClassTotals{}}
	m.rng = rand.New(rand.NewPCG(1, uint64(crc32.ChecksumIEEE([]byte(p.Name)))))
	has := func(x *lifetime) bool {
		return !x.Kind.IsObject() && x.Time < until && slices.Contains(p.PIDs, x.PID)
	}
	counts := map[site]int{}
	for i := range r.lives {
		if x := &r.lives[i]; has(x) {
			counts[siteOf(x)]++
		}
	}
	for i := range r.lives {
		x := r.lives[i]
		if !has(&x) || m.rng.IntN(counts[siteOf(&x)]) >= mostOfSite {
			continue
		}
		m.steps = append(m.steps, step{x.Time, len(m.lives), false})
		if x.freed != 0 && x.freed < until {
			m.steps = append(m.steps, step{x.freed, len(m.lives), true})
		}
		m.lives = append(m.lives, x)
	}
	slices.SortStableFunc(m.steps, func(a, b step) int { return cmp.Compare(a.time, b.time) })
	if len(m.steps) > 0 {
		m.begin = m.steps[0].time
	}
	m.copies = make([]int, len(m.lives))
	return m
}

// site is what makes a site of the ledger.
type site struct {
	pid    uint32
	device int32
	kind   ledger.Kind
	stack  uint64
	api    string
}

func siteOf(x *lifetime) site { return site{x.PID, x.Device, x.Kind, x.Stack, x.API} }

// book books the allocation or the free of a copy of a life.
func (m *replay) book(i, n int, free bool, time uint64) {
	x := &m.lives[i]
	e := ledger.Event{
		Op: ledger.Alloc, Kind: x.Kind, Space: x.Space, PID: x.PID, TID: x.PID, Device: x.Device, Time: time,
		Address: uint64(2*i+n%2+1) << 36, Size: x.Size, Stack: x.Stack, API: x.API,
	}
	if free {
		e.Op, e.Size, e.Stack = ledger.Free, 0, 0
	}
	m.books.Apply(&e)
	if x.Kind != ledger.Tensor {
		return
	}
	key := totalsKey{x.PID, x.Device}
	if m.totals[key] == nil {
		m.totals[key] = make([]ledger.ClassTotals, ledger.SizeClasses)
	}
	c := &m.totals[key][ledger.SizeClass(x.Size)]
	if free {
		c.Frees, c.FreeBytes = c.Frees+1, c.FreeBytes+x.Size
	} else {
		c.Allocs, c.AllocBytes = c.Allocs+1, c.AllocBytes+x.Size
	}
}

// take books a step. An earlier copy that still lives ends when the next one is there.
func (m *replay) take(s step, first bool, time uint64) {
	switch n := m.copies[s.life]; {
	case !s.free:
		m.copies[s.life]++
		m.book(s.life, n+1, false, time)
		if x := &m.lives[s.life]; n > 0 && (x.freed == 0 || x.freed >= m.end) {
			m.book(s.life, n, true, time)
		}
	case first || m.lives[s.life].Time >= m.middle():
		m.book(s.life, n, true, time)
	}
}

func (m *replay) middle() uint64 { return m.begin + (m.end-m.begin)/2 }

// snapshot tells totals of tensors as if those in the sample were all.
func (m *replay) snapshot(segments ledger.Segments, now uint64) *ledger.Snapshot {
	if len(m.totals) > 0 {
		sampling := make([]float64, ledger.SizeClasses)
		for i := range sampling {
			sampling[i] = 1
		}
		reading := ledger.TensorReading{Time: now}
		for key, classes := range m.totals {
			live := uint64(0)
			for _, c := range classes {
				live += c.AllocBytes - c.FreeBytes
			}
			reading.Totals = append(reading.Totals, ledger.TensorTotals{PID: key.pid, Device: key.device, Reported: now, Allocated: live, Reserved: live, Classes: classes})
		}
		m.books.Tell(ledger.Sampling(sampling))
		m.books.Tell(reading)
	}
	m.books.Tell(segments)
	return m.books.Snapshot(now, time.Time{})
}

// run goes through the month and judges it now and then. It returns how often, and how often it
// found a leak.
func (m *replay) run(t *testing.T, o *observation) (judged, alarms int) {
	var segments ledger.Segments
	for _, x := range o.Moments[0].Snapshot.Sites {
		if x.Segment {
			segments = append(segments, x.Stack)
		}
	}
	middle := m.middle()
	half, _ := slices.BinarySearchFunc(m.steps, middle, func(s step, at uint64) int { return cmp.Compare(s.time, at) })
	st := stacks{o, map[uint64][]callstack.Frame{}, map[string]*callstack.Mapping{}}
	begin, next := uint64(0), round*7/2
	for n := 0; begin < month; n++ {
		steps, from, until := m.steps[half:], middle, m.end
		if n == 0 {
			steps, from, until = m.steps[:half], m.begin, middle
		}
		length := float64(round) * (0.8 + 0.4*m.rng.Float64())
		scale := length / float64(until-from)
		for _, s := range steps {
			now := begin + uint64(float64(s.time-from)*scale)
			m.take(s, n < 2, now)
			if now < next {
				continue
			}
			next = now + uint64(float64(judgeEvery)*(0.5+m.rng.Float64()))
			judged++
			wrong, books := false, m.snapshot(segments, now)
			for _, g := range m.outcome(o, books, verdict.JudgeLines(books, verdict.Judge(books, st))).alarms {
				wrong = true
				t.Logf("after %v: %s leaks: %s", time.Duration(now), where(g), g.Evidence)
			}
			if wrong {
				alarms++
			}
		}
		begin += uint64(length)
	}
	t.Logf("%d steps, %d of them repeated; %d of %d verdicts are alarms", len(m.steps), len(m.steps)-half, alarms, judged)
	return judged, alarms
}
