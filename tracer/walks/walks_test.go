// SPDX-License-Identifier: Apache-2.0

package walks

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/booking"
	"github.com/vramprof/vramprof/tracer/defects"
	"github.com/vramprof/vramprof/tracer/holders"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func walker(every time.Duration, traced ...uint32) *Walker {
	return New(Options{Every: every, Traced: func() []uint32 { return slices.Clone(traced) }, HasTorch: func(pid uint32) bool { return pid == 1 }})
}

func TestAProcessWithoutTensorsIsReadAgainOnlyWhenPyTorchAllocates(t *testing.T) {
	w, now := walker(0, 2, 1), time.Now()
	if got := w.due(now); !slices.Equal(got, []uint32{1, 2}) {
		t.Fatalf("due at first: %v", got)
	}
	for _, pid := range []uint32{1, 2} {
		w.note(pid, fmt.Errorf("find holders: %w", holders.ErrNoTensors))
	}
	if got := w.due(now.Add(firstPause / 2)); len(got) != 0 {
		t.Errorf("due again too early: %v", got)
	}
	if got := w.due(now.Add(2 * firstPause)); !slices.Equal(got, []uint32{1}) {
		t.Errorf("due later: %v", got)
	}
}

// A program that calls CUDA itself may have had nothing at the attach; its allocations have holders all
// the same.
func TestAProcessWithoutPyTorchIsReadAtTheEndIfItHasAllocated(t *testing.T) {
	w := walker(0, 2, 3)
	w.Desk = booking.New(ledger.New(ledger.Options{Begin: 1}), nil, &defects.List{})
	w.due(time.Now())
	for _, pid := range []uint32{2, 3} {
		if w.pointless(pid) {
			t.Errorf("process %d was never read, and is not read at the end", pid)
		}
		w.note(pid, holders.ErrNoTensors)
		if !w.pointless(pid) {
			t.Errorf("process %d has nothing, and is read at the end", pid)
		}
	}
	turn := w.Desk.Take()
	turn.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 2, Time: 2, Address: 0x7000, Size: 4096, API: "cudaMalloc"})
	turn.TakeAll()
	turn.Done()
	if w.pointless(2) || !w.pointless(3) {
		t.Errorf("after an allocation of process 2: pointless %v and %v", w.pointless(2), w.pointless(3))
	}
	w.note(2, holders.ErrNoPython)
	if !w.pointless(2) {
		t.Error("a process without Python is read at the end")
	}
}

func TestAProcessIsReadOnceOrAtIntervals(t *testing.T) {
	for every, want := range map[time.Duration]int{0: 0, time.Minute: 1} {
		w, now := walker(every, 1), time.Now()
		w.due(now)
		w.note(1, nil)
		if got := w.due(now.Add(time.Hour)); len(got) != want {
			t.Errorf("every %v: due %v", every, got)
		}
	}
	for _, err := range []error{holders.ErrNoPython, unix.EPERM} {
		w := walker(time.Minute, 1)
		w.due(time.Now())
		w.note(1, err)
		if got := w.due(time.Now().Add(time.Hour)); len(got) != 0 {
			t.Errorf("after %v: due %v", err, got)
		}
	}
}

func TestPausesGrowAndHaveALimit(t *testing.T) {
	w, now := walker(0, 1), time.Now()
	w.due(now)
	for range 100 {
		w.note(1, holders.ErrNoTensors)
	}
	if next := w.known[1].next; next.Before(now.Add(lastPause)) || next.After(time.Now().Add(lastPause)) {
		t.Errorf("the next walk is in %v", next.Sub(now))
	}
}

func TestEndedProcessesAreForgotten(t *testing.T) {
	traced := []uint32{1, 2}
	w := New(Options{Traced: func() []uint32 { return slices.Clone(traced) }, HasTorch: func(uint32) bool { return true }})
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
	image, err := holders.ReadImage(file)
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
