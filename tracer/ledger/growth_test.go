// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

// stepping is a training of a second per step: most of a step it has activations of 1 GiB, and each
// keeps leak bytes.
func stepping(seconds, leak uint64) *Ledger {
	l := New(Options{Begin: 1e9})
	for i := range seconds {
		now := 2e9 + i*1e9
		alloc := func(address, size, stack uint64) {
			l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: now, Address: address, Size: size, Stack: stack, API: "cudaMalloc"})
		}
		alloc(1<<40, 1<<30, 1)
		if leak > 0 {
			alloc(1<<41+i*leak, leak, 2)
		}
		l.Apply(&Event{Op: Free, PID: 7, TID: 7, Time: now + 0.9e9, Address: 1 << 40})
	}
	return l
}

func TestGrowthIsNotThePhaseOfAStep(t *testing.T) {
	const seconds = 120
	for at := range uint64(20) {
		end := uint64(2e9) + seconds*1e9
		l := stepping(seconds, 1<<20)
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: end, Address: 1 << 40, Size: 1 << 30, Stack: 1, API: "cudaMalloc"})
		s := l.Snapshot(end+at*1e7, time.Time{})
		for i := range s.Sites {
			switch x := &s.Sites[i]; {
			case x.Stack == 1 && x.Growth != 0:
				t.Errorf("activations grow by %d", x.Growth)
			case x.Stack == 2 && (x.Growth < 55<<20 || x.Growth > 65<<20):
				t.Errorf("a leak of 60 MiB grows by %d", x.Growth)
			}
		}
	}
}

func TestGrowthOfALongSessionIsThatOfTheLastHour(t *testing.T) {
	for _, hours := range []uint64{3, 9, 30} {
		l := stepping(hours*3600, 1<<10)
		s := l.Snapshot(2e9+hours*3600e9, time.Time{})
		if span := s.GrowthSpan(0); span != 3600e9 {
			t.Errorf("growth is over %v", time.Duration(span))
		}
		for i := range s.Sites {
			switch x := &s.Sites[i]; {
			case x.Stack == 1 && x.Growth != 0:
				t.Errorf("activations grow by %d", x.Growth)
			case x.Stack == 2 && (x.Growth < 3300<<10 || x.Growth > 3900<<10):
				t.Errorf("%d hours: a leak of 3600 KiB an hour grows by %d KiB", hours, x.Growth>>10)
			}
		}
	}
}

func TestAGPUOfALongSessionSaysWhatItUsedAnHourAgo(t *testing.T) {
	l := New(Options{Begin: 1e9})
	const readings = 5 * 24 * 360
	for i := range uint64(readings) { // one in 10 s
		l.Tell(GPUs{{UUID: "GPU-a", Total: 1 << 40, Used: 1000 + i}})
		l.Tell(UsageReading{Time: 2e9 + i*10e9})
	}
	g := l.Snapshot(2e9+readings*10e9, time.Time{}).GPUs[0]
	if ago := g.Time - g.EarlierTime; ago < 2000e9 || ago > 3600e9 {
		t.Errorf("%v ago", time.Duration(ago))
	}
	if n := len(l.gpus.used["GPU-a"].list); n > maxMarks {
		t.Errorf("%d marks", n)
	}
}
