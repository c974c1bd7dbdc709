// SPDX-License-Identifier: Apache-2.0

package growth

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

func TestPhasesAddUpToTheTimeThatWasTraced(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var x Phases
		now, traced, last := uint64(1000), uint64(0), uint64(0)
		for range rng.IntN(1000) {
			from := now
			x.Reach(now, 10+rng.Uint64N(5))
			for range rng.IntN(4) {
				now += 1 + rng.Uint64N(8e8)
				x.Reach(now, 10+rng.Uint64N(5))
			}
			now += rng.Uint64N(1e9)
			if !x.End(now) {
				t.Fatal("a phase did not end")
			}
			traced += now - from
			now += 1 + rng.Uint64N(5e9)
		}
		sum := uint64(0)
		list := x.View(500, now)
		if len(list) > MaxPhases {
			t.Fatalf("%d phases", len(list))
		}
		for _, p := range list {
			if p.From < last || p.To < p.From || p.Traced > p.To-p.From || p.Floor < 10 || p.Floor > 14 {
				t.Fatalf("%+v after %d", p, last)
			}
			sum, last = sum+p.Traced, p.To
		}
		if sum != traced {
			t.Fatalf("%d of %d ns", sum, traced)
		}
	}
}

// TestAPhaseShowsTheFloorOverTime: a long one is cut, so that growth is seen in it.
func TestAPhaseShowsTheFloorOverTime(t *testing.T) {
	var x Phases
	for i := range uint64(100) {
		x.Reach(1+i*1e8, 1000+i)
	}
	list := x.View(0, 1e10)
	if len(list) < 9 || list[0].Floor != 1000 || list[len(list)-1].Floor < 1089 {
		t.Errorf("%+v", list)
	}
}

// TestAPhaseThatBeganAfterItsPauseIsNone: the probe was attached and detached again in one pause.
func TestAPhaseThatBeganAfterItsPauseIsNone(t *testing.T) {
	var x Phases
	x.Reach(10, 1)
	if !x.End(20) {
		t.Fatal("no phase")
	}
	x.Reach(40, 1)
	if x.End(20) || x.Open() || len(x.View(0, 50)) != 1 {
		t.Errorf("%+v", x)
	}
}

func TestPhasesAndPresumedSurviveACapture(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		var x, y Phases
		a, b := NewPresumed(), NewPresumed()
		now := uint64(1)
		type entry struct{ birth, size uint64 }
		var live []entry
		for range rng.IntN(300) {
			now += 1 + rng.Uint64N(1e9)
			x.Reach(now, rng.Uint64N(100))
			a.Add(1, now, 8)
			live = append(live, entry{now, 8})
			if k := rng.IntN(len(live)); rng.IntN(3) == 0 {
				a.Free(1, live[k].birth, now, live[k].size)
				live = append(live[:k], live[k+1:]...)
			}
			if rng.IntN(10) == 0 {
				x.End(now)
				a.EndPhase()
				for _, e := range live {
					a.Lose(1, e.birth, now, now, e.size)
				}
				live = nil
			}
		}
		w := codec.NewWriter()
		x.Carry(w)
		a.Carry(w)
		r := codec.NewReader(w.Data, nil, nil, func(int) {})
		y.Carry(r)
		b.Carry(r)
		if r.Bad || len(r.Rest) > 0 {
			t.Fatalf("bad: %v, %d left", r.Bad, len(r.Rest))
		}
		if !reflect.DeepEqual(x.View(0, now), y.View(0, now)) {
			t.Fatalf("%+v\n%+v", x.View(0, now), y.View(0, now))
		}
		v, _ := a.View(1, now, make([]Cohort, CohortLen))
		u, _ := b.View(1, now, make([]Cohort, CohortLen))
		if !reflect.DeepEqual(v.Cohorts, u.Cohorts) || a.longest != b.longest || a.now != b.now {
			t.Fatalf("%+v\n%+v", v, u)
		}
	}
}

// TestWhatOutlivedAllThatWereFreedIsPresumedToLive: of a line whose entries live for 10 ns, those
// lived on that were clearly older when tracing paused.
func TestWhatOutlivedAllThatWereFreedIsPresumedToLive(t *testing.T) {
	x := NewPresumed()
	live := func() (objects uint64) {
		v, _ := x.View(0, 1e6, make([]Cohort, CohortLen))
		for _, w := range v.Cohorts {
			objects += w.LiveObjects
		}
		return objects
	}
	for i := range uint64(10) {
		x.Add(0, 100*i, 1)
		x.Add(0, 100*i, 1) // is kept
		x.Free(0, 100*i, 100*i+10, 1)
	}
	x.Add(0, 990, 1) // in flight
	x.EndPhase()
	for i := range uint64(10) {
		x.Lose(0, 100*i, 1000, 1000, 1)
	}
	x.Lose(0, 990, 1000, 1000, 1)
	if n := live(); n != 10 {
		t.Errorf("%d live, want the 10 that were kept", n)
	}
	for range 100 { // what lived long once is forgotten
		x.EndPhase()
	}
	x.Add(0, 5000, 1)
	x.Lose(0, 5000, 5100, 5100, 1)
	if n := live(); n != 11 {
		t.Errorf("%d live, want 11", n)
	}
	x.Add(0, 6000, 1)
	x.Free(0, 6000, 6010, 1)
	x.Add(0, 7000, 1)
	x.EndPhase()
	x.Lose(0, 7000, 7005, 9000, 1) // the process did not run from 7005 on
	if n := live(); n != 11 {
		t.Errorf("%d live after a pause of the process, want 11", n)
	}
}
