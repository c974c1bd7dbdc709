// SPDX-License-Identifier: Apache-2.0

package steps

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/vramprof/vramprof/report/purpose/phase"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// mixed is a training with accumulation, evaluations, a large step and a leak of 100 bytes a step.
func mixed(p *program, steps int) {
	p.alloc(build, 1000)
	for i := range steps {
		size := uint64(100)
		if i%16 == 11 {
			size = 5000
		}
		p.free(p.train(30, size), p.train(30, 100))
		p.alloc(own, 100)
		p.step(40)
		if i%7 == 6 {
			p.evaluate(70, 3, 50)
		}
	}
}

// eventsOf returns the events of a program.
func eventsOf(run func(p *program)) (*program, []ledger.Event) {
	p := newProgram()
	var events []ledger.Event
	p.record = &events
	run(p)
	return p, events
}

// TestLookIsWhatASessionThatEndsThereHas: at any event of a session that goes on, its steps are
// those of a session that has ended there, and what was returned before does not change.
func TestLookIsWhatASessionThatEndsThereHas(t *testing.T) {
	p, events := eventsOf(func(p *program) { mixed(p, 60) })
	small := limits{steps: 16, blocks: 1000, ended: 2}
	going := newFinder(p, nil, small)
	type look struct {
		list []Steps
		text []byte
	}
	var looks []look
	for i := range events {
		going.Apply(&events[i])
		if i%37 != 0 {
			continue
		}
		fresh := newFinder(p, nil, small)
		for k := range events[:i+1] {
			fresh.Apply(&events[k])
		}
		got, want := going.look(), fresh.Steps()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("after %d events: %+v, want %+v", i+1, got, want)
		}
		looks = append(looks, look{got, frozen(t, got)})
	}
	for i := range looks {
		if string(frozen(t, looks[i].list)) != string(looks[i].text) {
			t.Fatalf("look %d has changed", i)
		}
	}
	if s := looks[len(looks)-1].list; len(s) != 1 || s[0].Count < 50 {
		t.Errorf("%+v", s)
	}
}

func frozen(t *testing.T, list []Steps) []byte {
	t.Helper()
	var details []any
	for i := range list {
		for _, d := range list[i].details {
			details = append(details, d)
		}
	}
	b, err := json.Marshal([]any{list, details})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// late has stacks from some moment on, as a session has: events come before their stacks.
type late struct {
	mu   sync.Mutex
	from *program
	open bool
}

func (l *late) Stack(id uint64) []callstack.Frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		return nil
	}
	return l.from.Stack(id)
}

// TestLiveStepsAreThoseOfACapture: a session that goes on finds what a capture of it shows,
// although stacks come after their events.
func TestLiveStepsAreThoseOfACapture(t *testing.T) {
	p, events := eventsOf(func(p *program) { mixed(p, 60) })
	var l Live
	stacks := &late{from: p}
	l.Begin(stacks)
	l.Tell(ledger.SampleRate{Mean: 1 << 20})
	for i := range events {
		l.Apply(&events[i])
	}
	if found := l.Steps(false); len(found.List) != 0 {
		t.Errorf("%d processes have steps before their stacks are read", len(found.List))
	}
	stacks.open = true
	got, want := l.Steps(true).List, p.f.Steps()
	if len(got) != 1 || len(want) != 1 {
		t.Fatalf("%+v, want %+v", got, want)
	}
	check(t, &got[0], Optimizer, Certain, 60, 2)
	if got[0].Growth(0) != want[0].Growth(0) || got[0].Growth(0) != (Rate{100, 100}) || got[0].Pace() != want[0].Pace() || got[0].Pace() == 0 {
		t.Errorf("growth %+v and pace %v, want %+v and %v", got[0].Growth(0), got[0].Pace(), want[0].Growth(0), want[0].Pace())
	}
	at, bytes, ok := got[0].Peak(0)
	if !ok || bytes != p.peak || at.Step != 60 {
		t.Errorf("peak %d in step %d, want %d", bytes, at.Step, p.peak)
	}
}

// TestLivePeakMayBeBetweenSteps: nobody knows in advance where the peak will be.
func TestLivePeakMayBeBetweenSteps(t *testing.T) {
	p, events := eventsOf(func(p *program) {
		mixed(p, 14)
		p.evaluate(70, 3, 50_000)
		mixed(p, 14)
	})
	var l Live
	l.Begin(p)
	for i := range events {
		l.Apply(&events[i])
	}
	at, bytes, ok := l.Steps(true).List[0].Peak(0)
	if !ok || bytes != p.peak {
		t.Errorf("the peak has %d bytes, want %d", bytes, p.peak)
	}
	wantPlace(t, at, 14, true, phase.Evaluation)
}

// TestLiveForgetsWhatItDidNotSee: events beyond the queue, and those of pauses, are steps that
// nobody counted.
func TestLiveForgetsWhatItDidNotSee(t *testing.T) {
	p, events := eventsOf(func(p *program) { mixed(p, 60) })
	play := func(l *Live, list []ledger.Event) {
		for i := range list {
			l.Apply(&list[i])
		}
	}
	for name, between := range map[string]func(l *Live){
		"a pause":              func(l *Live) { l.Tell(ledger.Untraced{PID: p.pid}) },
		"a pause of all":       func(l *Live) { l.Tell(ledger.Untraced{}) },
		"another's pause":      func(l *Live) { l.Tell(ledger.Untraced{PID: p.pid + 1}) },
		"a queue that is full": func(l *Live) { l.over = true; l.Apply(&events[0]) },
	} {
		var l Live
		l.Begin(p)
		play(&l, events[:len(events)/2])
		between(&l)
		if name == "a queue that is full" {
			l.Steps(true)
		}
		play(&l, events[len(events)/2:])
		list := l.Steps(true).List
		if len(list) != 1 {
			t.Fatalf("%s: %+v", name, list)
		}
		s := &list[0]
		if whole := name == "another's pause"; s.Paused == whole || s.Count == 60 != whole || strings.Contains(s.Text(), "pause") == whole || s.Count < 25 {
			t.Errorf("%s: %s", name, s.Text())
		}
	}
}

func TestLostEventsLeaveNoRate(t *testing.T) {
	p, events := eventsOf(func(p *program) { mixed(p, 60) })
	f := NewFinder(p, nil)
	for i := range events {
		f.Apply(&events[i])
	}
	f.Tell(ledger.Stats{LostBy: map[uint32]uint64{p.pid: 1, p.pid + 1: 5}})
	s := f.Steps()[0]
	if !s.Lossy || s.Sure == Certain || s.Growth(0) != (Rate{}) || s.PerStep(1e9) != (Rate{}) || s.Pace() != 0 || !strings.Contains(s.Text(), "events were lost") {
		t.Errorf("%+v: %s", s.Growth(0), s.Text())
	}
}

// TestLiveStepsThatTheSampleLacksAreNotCertain: of each fifth step, no tensor of the optimizer is
// in the sample. A session knows how likely that is, as a capture of it does.
func TestLiveStepsThatTheSampleLacksAreNotCertain(t *testing.T) {
	p, events := sampledEvents(1, func(p *program) {
		for range 100 {
			p.free(p.train(30, 2*mib))
			for range 6 {
				p.free(p.alloc(optimizer(40), 256*kib))
			}
			p.alloc(own, mib)
		}
	})
	want := stepsOfEvents(t, p, events)
	var l Live
	l.Begin(p)
	l.Tell(sampling)
	l.Tell(ledger.SampleRate{Mean: mib})
	for i := range events {
		l.Apply(&events[i])
	}
	got := l.Steps(true).List
	if len(got) != 1 || got[0].Sure != Likely || got[0].Missing+got[0].Unseen == 0 || got[0].Text() != want.Text() {
		t.Errorf("%+v\nwant %s", got, want.Text())
	}
}

// TestAGrowthIsARangeWhereStepsMayBeMissing: optimizers that samples show now and then have at most
// one step for each backward pass; passes alone may be several of a step.
func TestAGrowthIsARangeWhereStepsMayBeMissing(t *testing.T) {
	missing := newProgram()
	for i := range 100 {
		missing.free(missing.train(30, 100)[:3])
		missing.alloc(own, 100)
		if i%2 == 0 || i%5 == 0 {
			missing.step(40)
		}
	}
	s := missing.found(t)
	if g := s.Growth(0); s.Sure != Likely || g.Low >= g.High || g.Low > 200 || g.High < 200 || s.Pace() != 0 {
		t.Errorf("%s: grows %s, pace %v", s.Text(), g.Text(), s.Pace())
	}
	if r := s.PerStep(1e9); r.Low >= r.High || !strings.Contains(Rate{3 << 20, 12 << 20}.Text(), "3.00 MiB to 12.0 MiB a step") {
		t.Errorf("%+v: %s, %s", r, r.Text(), Rate{3 << 20, 12 << 20}.Text())
	}
	passes := newProgram()
	first := true
	for range 40 {
		saved := passes.alloc(forward(30), 100, 100, 100)
		passes.alloc(own, 100)
		if first {
			passes.backward(saved)
			first = false
			continue
		}
		passes.free(passes.alloc(backward, 50))
		passes.free(saved)
	}
	s = passes.found(t)
	if g := s.Growth(0); s.By != Period || g != (Rate{100, 0}) || g.Text() != "at least 100 B a step" || s.Pace() != 0 {
		t.Errorf("%s: grows %+v, %s", s.Text(), s.Growth(0), g.Text())
	}
}

func TestAPanicEndsTheSearchAlone(t *testing.T) {
	var l Live
	l.Begin(panicking{})
	l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Address: 1, Size: 1, Stack: 1})
	if found := l.Steps(true); found != nil || len(l.Warnings()) != 1 {
		t.Errorf("%+v, %q", found, l.Warnings())
	}
	l.Apply(&ledger.Event{Op: ledger.Exit, PID: 7})
	l.Steps(false)
}

type panicking struct{}

func (panicking) Stack(uint64) []callstack.Frame { panic("a defect") }

// BenchmarkLiveApply is what steps take of the time in which an event is booked.
func BenchmarkLiveApply(b *testing.B) {
	_, events := eventsOf(func(p *program) { mixed(p, 60) })
	var l Live
	for i := range b.N {
		l.Apply(&events[i%len(events)])
		if i%100_000 == 0 {
			l.queue = l.queue[:0]
		}
	}
}

// BenchmarkLook is a look at a training of 5,000 steps.
func BenchmarkLook(b *testing.B) {
	p, events := eventsOf(func(p *program) { mixed(p, 5000) })
	f := newFinder(p, nil, limits{steps: liveSteps, blocks: liveBlocks, ended: liveEnded})
	for i := range events {
		f.Apply(&events[i])
	}
	b.ResetTimer()
	for range b.N {
		f.look()
	}
}
