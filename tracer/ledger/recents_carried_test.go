// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

// monthOld is a ledger of a session of a month: a process that goes on, and one that ends.
func monthOld(kind Kind, space Space) (l *Ledger, end uint64) {
	l, end = New(Options{Begin: 1e9}), 1e9
	rng := rand.New(rand.NewPCG(3, 4))
	l.Tell(Sampling(func() []float64 {
		p := make([]float64, SizeClasses)
		for i := range p {
			p[i] = 0.5
		}
		return p
	}()))
	for i := range uint64(20_000) {
		end += rng.Uint64N(260e9)
		pid := uint32(7 + i%2)
		if pid == 8 && i > 19_000 {
			pid = 7
		}
		if i == 19_001 {
			l.Apply(&Event{Op: Exit, PID: 8, TID: 8, Time: end})
		}
		l.Apply(&Event{Op: Alloc, Kind: kind, Space: space, PID: pid, TID: pid, Time: end, Address: (i + 1) << 20, Size: 512 + 512*(i%3), Stack: 1 + i%5, API: "torch"})
		if back := rng.Uint64N(400); back < i && i%50 != 0 {
			l.Apply(&Event{Op: Free, Kind: kind, Space: space, PID: 7 + uint32((i-back)%2), TID: 7, Time: end, Address: (i - back + 1) << 20})
		}
	}
	return l, end
}

// TestARecentPastIsCarried: through checkpoints, the beginning of a capture, and the packing of
// processes that ended.
func TestARecentPastIsCarried(t *testing.T) {
	for kind, space := range map[Kind]Space{Device: Addresses, Tensor: Blocks} {
		l, end := monthOld(kind, space)
		want := l.Snapshot(end, time.Time{})
		known := 0
		for i := range want.Sites {
			if r := want.Sites[i].Recent; r != nil {
				known++
				if _, ok := r.Horizon(5); !ok || len(r.Records) < 6 {
					t.Errorf("%+v has no long horizon", want.Sites[i])
				}
			}
		}
		if known < 10 {
			t.Fatalf("%d sites have a recent past", known)
		}
		checkpoint := New(Options{})
		if !l.Checkpoint(checkpoint, 1<<30) || !checkpoint.Restored() {
			t.Fatal("no checkpoint")
		}
		if d := differs(checkpoint.Snapshot(end, time.Time{}), want); d != "" {
			t.Errorf("after a checkpoint: %s", d)
		}
		for _, x := range []*Ledger{l, checkpoint} { // further events do the same
			for i := range uint64(100) {
				x.Apply(&Event{Op: Alloc, Kind: kind, Space: space, PID: 7, TID: 7, Time: end + i*60e9, Address: 1<<50 + i<<20, Size: 512, Stack: 1 + i%5, API: "torch"})
			}
		}
		end += 6000e9
		a, b := l.Snapshot(end, time.Time{}), checkpoint.Snapshot(end, time.Time{})
		if d := differs(b, a); d != "" {
			t.Errorf("after a checkpoint and further events: %s", d)
		}
		purged := false
		for n := range l.procs {
			purged = purged || l.procs[n].purged && len(l.procs[n].archived) > 0
		}
		if !purged {
			t.Error("no process was packed")
		}
	}
}

// withoutRecents is books that are not told of a recent past.
type withoutRecents struct {
	*Ledger
	pieces uint32
}

func (x *withoutRecents) Tell(in Input) {
	if c, ok := in.(Carried); ok {
		if carriedKind(c.Data[0]>>1) == carriedRecents {
			return
		}
		c.Piece = x.pieces
		x.pieces++
		in = c
	}
	x.Ledger.Tell(in)
}

// TestACaptureWithoutARecentPastIsRead: earlier ones have none. It begins with the next event.
func TestACaptureWithoutARecentPastIsRead(t *testing.T) {
	l, end := monthOld(Device, Addresses)
	old := New(Options{})
	l.Opening(&withoutRecents{Ledger: old})
	if !old.Restored() {
		t.Fatal(old.Snapshot(end, time.Time{}).Warnings)
	}
	for i := range uint64(3000) {
		old.Apply(&Event{Op: Alloc, Kind: Device, PID: 7, TID: 7, Time: end + i*1e9, Address: 1<<50 + i<<20, Size: 512, Stack: 1, API: "torch"})
	}
	checkLedger(t, old)
	for _, x := range old.Snapshot(end+3000e9, time.Time{}).Sites {
		if x.Stack != 1 || x.Recent == nil {
			continue
		}
		if h, ok := x.Recent.Horizon(0); !ok || h.Cohorts[len(h.Cohorts)-2].AllocObjects < 60 {
			t.Errorf("%+v", h)
		}
		return
	}
	t.Error("no recent past")
}
