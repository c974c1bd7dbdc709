// SPDX-License-Identifier: Apache-2.0

package heapscan

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/holders/peek"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

func walker(every time.Duration, traced ...uint32) *Walker {
	return New(Options{UserOf: userOf, Every: every, Traced: func() []uint32 { return slices.Clone(traced) }, HasTorch: func(pid uint32) bool { return pid == 1 }})
}

// userOf has processes from 1000 on be of user 2.
func userOf(pid uint32) uint32 { return 1 + pid/1000 }

// A user with many processes that take long to walk, and others' processes that come later.
func TestUsersTakeTurnsInWalks(t *testing.T) {
	traced := []uint32{2001, 1001}
	for pid := range uint32(500) {
		traced = append(traced, pid+1)
	}
	w, now := walker(time.Minute, traced...), time.Now()
	if got := w.due(now)[:3]; !slices.Equal(got, []uint32{1, 1001, 2001}) {
		t.Errorf("the first ones to walk are %v", got)
	}
	for pid := range uint32(3) { // found nothing, and wait
		w.note(pid+1, 0, holders.ErrPython)
	}
	if got := w.due(now)[:4]; !slices.Equal(got, []uint32{4, 1001, 2001, 5}) {
		t.Errorf("later, they are %v", got)
	}
}

// Processes of a user who run out of memory together, and one of another user.
func TestUrgentWalksAreSharedByUser(t *testing.T) {
	w := walker(time.Minute, 1, 2, 3, 4, 5, 1001)
	w.Sequencer = sequence.New(ledger.New(ledger.Options{Begin: 1}), nil, &panics.List{})
	hold := make(chan struct{})
	w.Blocks = func(uint32) []ledger.Block { <-hold; return nil }
	now := func(pid uint32) func() {
		tx := w.Sequencer.Begin()
		defer tx.Done()
		return w.Now(tx, pid, 2, nil)
	}
	var waits []func()
	for range 3 {
		for pid := uint32(1 << 22); pid < 1<<22+5; pid++ { // that do not exist
			if wait := now(pid); wait != nil {
				waits = append(waits, wait)
			}
		}
	}
	if len(waits) != mostUrgent/2 {
		t.Errorf("one user has %d of %d urgent walks", len(waits), mostUrgent)
	}
	if wait := now(1001); wait == nil {
		t.Error("another user's process is not walked")
	} else {
		waits = append(waits, wait)
	}
	close(hold)
	for _, wait := range waits {
		wait()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.urgent.Used() != 0 {
		t.Errorf("%d urgent walks never end", w.urgent.Used())
	}
}

func TestAProcessWithoutTensorsIsReadAgainOnlyWhenPyTorchAllocates(t *testing.T) {
	w, now := walker(0, 2, 1), time.Now()
	if got := w.due(now); !slices.Equal(got, []uint32{1, 2}) {
		t.Fatalf("due at first: %v", got)
	}
	for _, pid := range []uint32{1, 2} {
		w.note(pid, 0, &holders.WalkError{Err: holders.ErrNoTensors})
	}
	if got := w.due(now.Add(firstPause / 2)); len(got) != 0 {
		t.Errorf("due again too early: %v", got)
	}
	if got := w.due(now.Add(2 * firstPause)); !slices.Equal(got, []uint32{1}) {
		t.Errorf("due later: %v", got)
	}
}

// A program that calls CUDA itself may have had nothing at the attach; its allocations have holders
// all the same.
func TestAProcessWithoutPyTorchIsReadAtTheEndIfItHasAllocated(t *testing.T) {
	w := walker(0, 2, 3)
	w.Sequencer = sequence.New(ledger.New(ledger.Options{Begin: 1}), nil, &panics.List{})
	w.due(time.Now())
	for _, pid := range []uint32{2, 3} {
		if w.pointless(pid) {
			t.Errorf("process %d was never read, and is not read at the end", pid)
		}
		w.note(pid, 0, holders.ErrNoTensors)
		if !w.pointless(pid) {
			t.Errorf("process %d has nothing, and is read at the end", pid)
		}
	}
	tx := w.Sequencer.Begin()
	tx.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 2, Time: 2, Address: 0x7000, Size: 4096, API: "cudaMalloc"})
	tx.TakeAll()
	tx.Done()
	if w.pointless(2) || !w.pointless(3) {
		t.Errorf("after an allocation of process 2: pointless %v and %v", w.pointless(2), w.pointless(3))
	}
	w.note(2, 0, peek.ErrNoPython)
	if !w.pointless(2) {
		t.Error("a process without Python is read at the end")
	}
}

// TestAProcessIsReadEverMoreSeldomOrAtIntervals: one that ends by itself has been walked in its
// later half.
func TestAProcessIsReadEverMoreSeldomOrAtIntervals(t *testing.T) {
	w, now := walker(time.Minute, 1), time.Now()
	w.due(now)
	w.note(1, 0, nil)
	if got := w.due(now.Add(time.Hour)); len(got) != 1 {
		t.Errorf("every minute: due %v", got)
	}
	for took, want := range map[time.Duration]time.Duration{0: time.Hour, time.Second: time.Hour, 5 * time.Minute: 100 * time.Minute} {
		w := walker(0, 1)
		w.due(now.Add(-time.Hour))
		w.note(1, took, nil)
		if early, late := w.due(now.Add(want-time.Minute)), w.due(now.Add(want+time.Minute)); len(early) != 0 || len(late) != 1 {
			t.Errorf("known for an hour, walked in %v: due %v before and %v after %v", took, early, late, want)
		}
	}
	w = walker(0, 1)
	w.due(now)
	w.note(1, time.Second, nil)
	if early, late := w.due(now.Add(soonCost*time.Second-time.Second)), w.due(now.Add(soonCost*time.Second+time.Second)); len(early) != 0 || len(late) != 1 {
		t.Errorf("the second walk: due %v before and %v after %d s", early, late, soonCost)
	}
	w = walker(0, 1)
	w.due(now)
	w.note(1, 0, nil)
	if early, late := w.due(now.Add(leastPause/2)), w.due(now.Add(2*leastPause)); len(early) != 0 || len(late) != 1 {
		t.Errorf("known since now: due %v, then %v", early, late)
	}
	for _, err := range []error{peek.ErrNoPython, unix.EPERM} {
		w := walker(time.Minute, 1)
		w.due(time.Now())
		w.note(1, 0, err)
		if got := w.due(time.Now().Add(time.Hour)); len(got) != 0 {
			t.Errorf("after %v: due %v", err, got)
		}
	}
}

func TestPausesGrowAndHaveALimit(t *testing.T) {
	w, now := walker(0, 1), time.Now()
	w.due(now)
	for range 100 {
		w.note(1, 0, holders.ErrNoTensors)
	}
	if next := w.known[1].next; next.Before(now.Add(lastPause)) || next.After(time.Now().Add(lastPause)) {
		t.Errorf("the next walk is in %v", next.Sub(now))
	}
}

func TestEndedProcessesAreForgotten(t *testing.T) {
	traced := []uint32{1, 2}
	w := New(Options{UserOf: userOf, Traced: func() []uint32 { return slices.Clone(traced) }, HasTorch: func(uint32) bool { return true }})
	w.due(time.Now())
	traced = traced[:1]
	if w.due(time.Now()); len(w.known) != 1 {
		t.Errorf("%d processes are known", len(w.known))
	}
}

// TestWhatAWalkFoundIsBookedToTheByte walks a stored image of a process.
func TestWhatAWalkFoundIsBookedToTheByte(t *testing.T) {
	file, err := os.Open("../holders/testdata/synthetic-later.image")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	image, err := peek.ReadImage(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := holders.Walk(t.Context(), image, holders.Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := r.Storages[0]
	walk := bookable(r, []ledger.Block{{Address: first.Address, Size: first.Bytes + 512}})
	var want, got uint64
	for i := range r.Storages {
		want += r.Storages[i].Bytes
	}
	newer := 0
	for _, s := range walk.Storages {
		got += s.Bytes
		if s.Block != 0 {
			newer++
		}
		if int(s.Holder) >= len(walk.Holders) || len(walk.Holders[s.Holder].Frames) == 0 {
			t.Errorf("storage %+v has no holder with frames", s)
		}
	}
	if got != want || want == 0 || newer != 1 {
		t.Errorf("%d of %d bytes, %d newer", got, want, newer)
	}
	if empty := bookable(nil, nil); len(empty.Holders)+len(empty.Storages) != 0 {
		t.Errorf("nothing found is %+v", empty)
	}
}

func TestTextsOfAProcessAreBounded(t *testing.T) {
	for _, text := range []string{strings.Repeat("ü", maxPath), "\x1b[31m" + strings.Repeat("x", 10*maxPath), strings.Repeat("\xff", maxPath)} {
		got := bounded(text)
		if len(got) > maxPath+len("…") || !utf8.ValidString(got) || strings.ContainsRune(got, 0x1b) {
			t.Errorf("%.20q… became %d bytes, %.20q…", text, len(got), got)
		}
	}
}

func TestTheReasonThatAPythonCannotBeReadIsSaid(t *testing.T) {
	for err, want := range map[error]string{
		&holders.WalkError{Err: fmt.Errorf("%w 3.13.5: it is a free-threaded build", holders.ErrPython)}:        "cannot read this Python 3.13.5: it is a free-threaded build",
		&holders.WalkError{Err: fmt.Errorf("%w: open /usr/bin/python3.13: %w", holders.ErrPython, unix.EACCES)}: "cannot read this Python: open /usr/bin/python3.13: permission denied",
		&holders.WalkError{Err: fmt.Errorf("%w (7 objects of Python 3.13.5)", holders.ErrNoTensors)}:            ledger.WalkNoTensors,
		fmt.Errorf("copy the memory of process 7: %w", context.DeadlineExceeded):                                ledger.WalkNoTime,
		errNoTime: ledger.WalkNoTime,
	} {
		if got := failureOf(err); got != want {
			t.Errorf("%v is shown as %q, want %q", err, got, want)
		}
	}
}
