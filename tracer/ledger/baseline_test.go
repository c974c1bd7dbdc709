// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

func balanceOf(l *Ledger, now uint64) Balance {
	s := l.Snapshot(now, time.Unix(0, 0))
	if len(s.Balances) != 1 {
		return Balance{}
	}
	return s.Balances[0]
}

func TestBaselineOfALaterProcessWaitsForItsFirstAllocation(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(UsageReading{Time: 10, Usages: nil})
	l.Tell(Process{PID: 7, Begin: 20})
	l.Tell(Devices{PID: 7, UUIDs: []string{"GPU-a"}})
	// half of its context
	l.Tell(UsageReading{Time: 30, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 100 << 20}}})
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Device: UnknownDevice, Time: 40, Address: 1, Size: 8 << 20, API: "cudaMalloc"})
	l.Tell(UsageReading{Time: 50, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 308 << 20}}})
	if b := balanceOf(l, 55); b.Baseline != 300<<20 || b.Live != 8<<20 || b.Gap != 0 {
		t.Errorf("after the first allocation: %+v, want a baseline of 300 MiB and no gap", b)
	}
	l.Tell(UsageReading{Time: 60, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 318 << 20}}})
	if b := balanceOf(l, 65); b.Baseline != 300<<20 || b.Gap != 10<<20 {
		t.Errorf("after untraced memory: %+v, want the same baseline and a gap of 10 MiB", b)
	}
}

func TestBaselineOfARunningProcessIsItsFirstReading(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(Process{PID: 7, Begin: 2})
	l.Tell(Devices{PID: 7, UUIDs: []string{"GPU-a"}})
	l.Tell(UsageReading{Time: 10, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 300 << 20}}})
	l.Tell(UsageReading{Time: 20, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 340 << 20}}})
	if b := balanceOf(l, 25); b.Baseline != 300<<20 || b.Gap != 40<<20 {
		t.Errorf("got %+v, want a baseline of 300 MiB and a gap of 40 MiB", b)
	}
}

// A context that is made on another GPU during the session is read while it is built, whatever the
// process has elsewhere.
func TestBaselineOfALaterGPUIsThatOfItsWholeContext(t *testing.T) {
	for name, begin := range map[string]uint64{"attached": 1e9, "begun later": 7e9} {
		l := New(Options{Begin: 5e9})
		read := func(at uint64, bytes ...uint64) {
			in := UsageReading{Time: at}
			for i, n := range bytes {
				in.Usages = append(in.Usages, Usage{PID: 7, UUID: []string{"GPU-a", "GPU-b"}[i], Bytes: n << 20})
			}
			l.Tell(in)
		}
		l.Tell(Process{PID: 7, Begin: begin, Devices: []string{"GPU-a", "GPU-b"}})
		l.Tell(UsageReading{Time: 6e9})
		if name == "attached" {
			l = New(Options{Begin: 5e9})
			l.Tell(Process{PID: 7, Begin: begin, Devices: []string{"GPU-a", "GPU-b"}})
			read(6e9, 100)
		}
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 8e9, Address: 1 << 30, Size: 2 << 20, Device: 0, API: "cuMemAlloc_v2"})
		read(9e9, 102)
		read(10e9, 102, 18)
		read(11e9, 102, 90)
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 12e9, Address: 1 << 40, Size: 4 << 20, Device: 1, API: "cuMemAlloc_v2"})
		read(13e9, 102, 104)
		read(14e9, 102, 104)
		for _, x := range l.Snapshot(15e9, time.Time{}).Parts() {
			if x.Foreign != 100<<20 || x.Unexplained != 0 {
				t.Errorf("%s: got %+v, want a context of 100 MiB", name, x)
			}
		}
	}
}
