// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"testing"
	"time"
)

const (
	gib          = uint64(1 << 30)
	contextBytes = uint64(300 << 20)
)

// checkpointed returns books of a process that holds 60 GiB, 40 of them since the attach, and the
// time of their latest reading.
func checkpointed(devices ...string) (*Ledger, uint64) {
	l := New(Options{Begin: 1})
	l.Tell(GPUs{{UUID: "GPU-a", Total: 80 * gib, Used: 60*gib + contextBytes}, {UUID: "GPU-b", Index: 1, Total: 80 * gib}})
	l.Tell(Process{PID: 7, Comm: "train", Begin: 1})
	if devices != nil {
		l.Tell(Devices{PID: 7, UUIDs: devices})
	}
	l.Tell(UsageReading{Time: 2, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 20*gib + contextBytes}}})
	l.Apply(&Event{PID: 7, Op: Alloc, Kind: Device, Device: 0, Address: 4096, Size: 40 * gib, Time: 3})
	l.Tell(UsageReading{Time: 4, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 60*gib + contextBytes}}})
	return l, 4
}

// parts returns the only part of a process.
func partOf(t *testing.T, l *Ledger, now uint64) (Balance, Part) {
	t.Helper()
	s := l.Snapshot(now, time.Time{})
	if parts := s.Parts(); len(parts) == 1 && len(s.Balances) == 1 {
		return s.Balances[0], parts[0]
	}
	t.Fatalf("balances %+v", s.Balances)
	return Balance{}, Part{}
}

func TestAProcessThatNVMLNoLongerListsIsCheckpointedOrUnknownNotMinusEverything(t *testing.T) {
	for name, devices := range map[string][]string{"told": {"GPU-a"}, "deduced": nil} {
		t.Run(name, func(t *testing.T) {
			l, now := checkpointed(devices...)
			l.Tell(UsageReading{Time: now + 1})
			b, x := partOf(t, l, now+2)
			if !b.Unlisted || b.Usage != 0 || b.Live != 0 || b.Baseline != 0 || b.Gap != 0 || b.Time != now {
				t.Errorf("balance %+v", b)
			}
			if want := (Part{UUID: "GPU-a", Device: 0, Unlisted: 40 * gib}); x != want {
				t.Errorf("part %+v, want %+v", x, want)
			}
			l.Tell(UsageReading{Time: now + 3, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 60*gib + contextBytes}}})
			b, x = partOf(t, l, now+4)
			if b.Unlisted || b.Usage != 60*gib+contextBytes || x.Unlisted != 0 || x.Driver != 40*gib || x.Foreign != 20*gib+contextBytes || x.Unexplained != 0 {
				t.Errorf("restored: balance %+v, part %+v", b, x)
			}
		})
	}
}

func TestAProcessWhoseContextEndedUsesNothing(t *testing.T) {
	l, now := checkpointed("GPU-a")
	l.Apply(&Event{PID: 7, Op: ContextReset, Device: 0, Time: now + 1})
	l.Tell(UsageReading{Time: now + 2})
	b, x := partOf(t, l, now+3)
	if want := (Part{UUID: "GPU-a"}); b.Unlisted || b.Gap != 0 || x != want {
		t.Errorf("balance %+v, part %+v", b, x)
	}
}

func TestMemoryOnAnUnknownGPUOfAnUnlistedProcessIsInNoSum(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Tell(GPUs{{UUID: "GPU-a", Total: 80 * gib}, {UUID: "GPU-b", Index: 1, Total: 80 * gib}})
	l.Tell(Process{PID: 7, Begin: 1})
	both := []Usage{{PID: 7, UUID: "GPU-a", Bytes: 30 * gib}, {PID: 7, UUID: "GPU-b", Bytes: 30 * gib}}
	l.Tell(UsageReading{Time: 2, Usages: both})
	l.Apply(&Event{PID: 7, Op: Alloc, Kind: Device, Device: UnknownDevice, Address: 4096, Size: 20 * gib, Time: 3})
	l.Tell(UsageReading{Time: 4})
	var unlisted uint64
	for _, x := range l.Snapshot(5, time.Time{}).Parts() {
		if x.Usage != 0 || x.Unplaced != 0 || x.Unexplained != 0 || x.Foreign != 0 {
			t.Errorf("part %+v", x)
		}
		unlisted += x.Unlisted
	}
	if unlisted != 20*gib {
		t.Errorf("%d GiB are unlisted", unlisted/gib)
	}
}
