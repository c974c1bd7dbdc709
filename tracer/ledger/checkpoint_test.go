// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// TestBooksFromACheckpointAreTheSame in every figure, then and after all that follows.
func TestBooksFromACheckpointAreTheSame(t *testing.T) {
	rng, compared, purged := rand.New(rand.NewPCG(7, 11)), 0, 0
	for k, data := range randomSequences()[:150] {
		l, o := New(Options{Begin: 100e9, MaxLive: 64}), (*Ledger)(nil)
		l.openedAt = rng.Uint64N(2)
		at, last := rng.IntN(min(len(data)/16, 200)), uint64(0)
		for i := 0; len(data) >= 16; i, data = i+1, data[16:] {
			if i%7 == 0 {
				system := SystemReading{PID: uint32(i % 3), Time: last, Cut: i%2 == 0, On: []SystemOn{{"A", uint64(i)}, {"B", 7}}}
				l.Tell(system)
				if o != nil {
					o.Tell(system)
				}
			}
			if i == at {
				o = New(Options{})
				if taken := l.Checkpoint(o, math.MaxInt); !taken || !o.Restored() {
					t.Fatalf("sequence %d, event %d: the checkpoint was not taken", k, i)
				}
				checkLedger(t, o)
				for _, p := range l.procs {
					if p.purged {
						purged++
					}
				}
			}
			last = max(last, stepHostile(l, data).Time)
			if o == nil {
				continue
			}
			stepHostile(o, data)
			if i%300 == 0 || i == at || i == at+20 {
				compared++
				a, b := booksOf(l, last), booksOf(o, last)
				if d := differs(a, b); d != "" || a.Opened != b.Opened || !reflect.DeepEqual(a.System, b.System) {
					t.Fatalf("sequence %d, event %d, checkpoint at %d:\n%s\nopened %d, %d; system %+v, %+v", k, i, at, d, a.Opened, b.Opened, a.System, b.System)
				}
			}
		}
	}
	if compared < 150 || purged < 50 {
		t.Errorf("only %d snapshots were compared; %d processes had lost their entries", compared, purged)
	}
}

func TestACheckpointIsNotLargerThanItMayBe(t *testing.T) {
	l := New(Options{Begin: 1})
	for i := range uint64(1000) {
		l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 2 + i, Address: 1 + i, Size: 100, API: "cudaMalloc"})
	}
	var list pieces
	if l.Checkpoint(&list, liveBytes*1000) || len(list) > 0 {
		t.Errorf("%d inputs of a checkpoint that is too large", len(list))
	}
	if !l.Checkpoint(&list, liveBytes*1000+siteBytes+processBytes+checkpointBytes) {
		t.Error("no checkpoint")
	}
}

// TestAPartOfACheckpointIsNotEnough: without its end it is not taken.
func TestAPartOfACheckpointIsNotEnough(t *testing.T) {
	l := New(Options{Begin: 1})
	l.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, Time: 7, Address: 1, Size: 100, API: "cudaMalloc"})
	var list pieces
	l.Checkpoint(&list, math.MaxInt)
	for missing := range list {
		n := New(Options{})
		for i, in := range list {
			if i != missing {
				n.Tell(in)
			}
		}
		_, carried := list[missing].(Carried)
		if n.Restored() == carried {
			t.Errorf("without input %d, %T: %v", missing, list[missing], n.Restored())
		}
	}
	if s := l.Snapshot(9, time.Time{}); len(s.Warnings) > 0 {
		t.Error(s.Warnings)
	}
}
