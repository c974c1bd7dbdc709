// SPDX-License-Identifier: Apache-2.0

package heapscan

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// told keeps the warnings that the books get.
type told struct{ warnings []string }

func (t *told) Apply(*ledger.Event) {}
func (t *told) Tell(in ledger.Input) {
	if w, is := in.(ledger.Warning); is {
		t.warnings = append(t.warnings, w.Text)
	}
}

// lastWalker has processes from 1 to n, of n, n-1, … KiB; a walk of one takes a time, or until its
// context ends.
func lastWalker(n uint32, each time.Duration) (w *Walker, walked *[]uint32, books *told) {
	var pids []uint32
	books, walked = &told{}, &[]uint32{}
	w = New(Options{UserOf: userOf, Traced: func() []uint32 { return slices.Clone(pids) }, HasTorch: func(uint32) bool { return true }})
	w.Sequencer = sequence.New(ledger.New(ledger.Options{Begin: 1}), books, &panics.List{})
	tx := w.Sequencer.Begin()
	for pid := range n {
		pids = append(pids, pid+1)
		tx.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: pid + 1, Time: 2, Address: 0x7000, Size: uint64(n-pid) << 10, API: "cudaMalloc"})
	}
	tx.TakeAll()
	tx.Done()
	slices.Reverse(pids)
	w.visit = func(ctx context.Context, pid uint32) {
		select {
		case <-time.After(each):
			*walked = append(*walked, pid)
		case <-ctx.Done():
		}
	}
	return w, walked, books
}

func TestLastWalksBeginWithTheLargestProcessesAndKeepWithinTheirTime(t *testing.T) {
	w, walked, books := lastWalker(802, 10*time.Millisecond)
	w.LastTime = 200 * time.Millisecond
	var done, of int
	w.Progress = func(d, o int) { done, of = d, o }
	begin := time.Now()
	w.Last(context.Background())
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	n := len(*walked)
	if n < 2 || n > 21 || !slices.IsSorted(*walked) || (*walked)[0] != 1 {
		t.Errorf("walked are %v", *walked)
	}
	if done != 802 || of != 802 {
		t.Errorf("progress ends at %d of %d", done, of)
	}
	if len(books.warnings) != 1 || !strings.Contains(books.warnings[0], "ended after 200ms: ") || !strings.Contains(books.warnings[0], " of 802 processes have holders of an earlier walk or none (--holders-time") {
		t.Errorf("warnings are %q", books.warnings)
	}
}

func TestAProcessThatTakesLongerThanAllLastWalksIsWalked(t *testing.T) {
	w, walked, books := lastWalker(2, 100*time.Millisecond)
	w.LastTime = time.Millisecond
	w.Last(context.Background())
	if !slices.Equal(*walked, []uint32{1}) || len(books.warnings) != 1 || !strings.Contains(books.warnings[0], "1 of 2 processes") {
		t.Errorf("walked are %v, warnings %q", *walked, books.warnings)
	}
}

func TestLastWalksAreSkippedWhenTheirContextEnds(t *testing.T) {
	w, walked, books := lastWalker(50, time.Minute)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	begin := time.Now()
	w.Last(ctx)
	if took := time.Since(begin); took > 5*time.Second || len(*walked) != 0 {
		t.Errorf("it took %v, and walked %v", took, *walked)
	}
	if len(books.warnings) != 1 || !strings.Contains(books.warnings[0], "were skipped: 50 of 50 processes") {
		t.Errorf("warnings are %q", books.warnings)
	}
}

func TestWalksThatAllEndAreNotWarnedOf(t *testing.T) {
	w, walked, books := lastWalker(3, 0)
	w.Last(context.Background())
	if len(*walked) != 3 || len(books.warnings) != 0 {
		t.Errorf("walked are %v, warnings %q", *walked, books.warnings)
	}
}
