// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTheHighestIsThatOfAReplay: between two readings, what a process, its sites and its allocators
// had when it had most is what a replay finds that stops there, whatever came and went since.
func TestTheHighestIsThatOfAReplay(t *testing.T) {
	higher := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		events := peakScript(rand.New(rand.NewPCG(seed, 1)))
		events = events[:len(events)-1] // it runs on
		l := New(Options{})
		l.AddHighest(l.Snapshot(0, time.Time{}))
		replay := func(until uint64) *Ledger {
			x := New(Options{})
			for i := range events {
				if events[i].Time <= until {
					x.Apply(&events[i])
					x.Tell(Segments{1, 2})
				}
			}
			return x
		}
		held, x, tensors := map[uint64]uint64{}, New(Options{}), false
		for i := range events {
			x.Apply(&events[i])
			x.Tell(Segments{1, 2})
			if torch := x.procs[0].peak.torch; torch && !tensors { // from now on its tensors are measured
				clear(held)
				tensors = true
			}
			held[events[i].Time] = x.procs[0].highNow()
		}
		from := uint64(0)
		for i := range events {
			l.Apply(&events[i])
			l.Tell(Segments{1, 2})
			if r.IntN(20) != 0 {
				continue
			}
			now := events[i].Time
			s := l.Snapshot(now, time.Time{})
			before := liveOf(s)
			l.AddHighest(s)
			at, most := uint64(0), uint64(0)
			for k := from; k <= now; k++ {
				if bytes, ok := held[k]; ok && (bytes > most || at == 0) {
					at, most = k, bytes
				}
			}
			if _, ok := held[now]; !ok { // its tensors were not measured yet
				from = now
				continue
			}
			got := before
			if s.Highest != nil {
				got = liveOf(s.Highest)
				higher++
			}
			if want := liveOf(replay(at).Snapshot(at, time.Time{})); most > held[now] && !maps.Equal(got, want) {
				t.Fatalf("seed %d, from %d to %d: at %d it held\n%v, a replay\n%v", seed, from, now, at, got, want)
			} else if most == held[now] && s.Highest != nil {
				t.Fatalf("seed %d, from %d to %d: it has most now", seed, from, now)
			}
			if after := liveOf(l.Snapshot(now, time.Time{})); !maps.Equal(before, after) {
				t.Fatalf("seed %d: the books of now are\n%v, before the highest was looked at\n%v", seed, after, before)
			}
			from = now
		}
	}
	if higher < 30 {
		t.Errorf("only %d intervals had more than their end", higher)
	}
}

// TestTheHighestKeepsThePastAndAddsUp: what a screen shows beside live bytes is that of now, and
// the parts of a process add up to its usage at the highest, as does the GPU.
func TestTheHighestKeepsThePastAndAddsUp(t *testing.T) {
	const mib = 1 << 20
	l := New(Options{Begin: 1})
	l.Tell(GPUs{{UUID: "GPU-a", Total: 1 << 40, Used: 400 * mib}})
	l.AddHighest(l.Snapshot(1, time.Time{}))
	event := func(op Op, at, address, size, stack uint64) {
		l.Apply(&Event{Op: op, Kind: Device, PID: 7, Time: at, Address: address, Size: size, Stack: stack, API: "cudaMalloc"})
	}
	event(Alloc, 2e9, 1, 100*mib, 1)
	l.Tell(UsageReading{Time: 3e9, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 400 * mib}}})
	l.AddHighest(l.Snapshot(3e9, time.Time{}))
	for i := range uint64(3) { // steps
		event(Alloc, 4e9+i*1e9, 2, 500*mib, 2)
		event(Free, 4e9+i*1e9+9e8, 2, 0, 2)
	}
	s := l.Snapshot(7e9, time.Time{})
	l.AddHighest(s)
	high := s.Highest
	if high == nil || len(high.Sites) != 2 || high.Sites[0].LiveBytes != 500*mib || high.Sites[0].Stack != 2 || s.Sites[0].LiveBytes != 100*mib {
		t.Fatalf("%+v", high)
	}
	if x := &high.Sites[0]; x.AllocObjects != 3 || len(x.Cohorts) == 0 || len(x.History) != HistoryLen || x.Growth != 0 {
		t.Errorf("the site lost its past: %+v", x)
	}
	if p := high.Parts()[0]; p.Usage+uint64(p.Since) != 900*mib || p.Driver != 600*mib || p.Unexplained != 0 {
		t.Errorf("parts %+v", p)
	}
	if got := high.GPUs[0].Now(); got != 900*mib || s.GPUs[0].Now() != 400*mib {
		t.Errorf("the GPU uses %d, and %d now", got, s.GPUs[0].Now())
	}
	if only := s.Only(func(*Process) bool { return false }); len(only.Highest.Sites) != 0 {
		t.Errorf("%d sites of processes that were not chosen", len(only.Highest.Sites))
	}
	s = l.Snapshot(8e9, time.Time{})
	if l.AddHighest(s); s.Highest != nil {
		t.Errorf("in a quiet interval %+v", s.Highest)
	}
}

func BenchmarkAddHighest(b *testing.B) {
	l := New(Options{})
	fill(l, 1e6, 10000, Device, Addresses)
	b.ReportAllocs()
	now := uint64(1e10)
	for b.Loop() {
		b.StopTimer()
		now += 1e9
		for i := range uint64(1000) {
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: now + i, Address: 1 + i, Size: 1 << 20, Stack: 1 + i, API: "cudaMalloc"})
		}
		for i := range uint64(1000) {
			l.Apply(&Event{Op: Free, PID: 7, TID: 7, Time: now + 1000 + i, Address: 1 + i})
		}
		s := l.Snapshot(now+5000, time.Time{})
		b.StartTimer()
		l.AddHighest(s)
	}
}
