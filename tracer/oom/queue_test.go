// SPDX-License-Identifier: Apache-2.0

package oom

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom/oomevent"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// fakeStacks are those of PyTorch's allocator below 100, and those that end early from 200 on.
type fakeStacks struct{}

func (fakeStacks) Passes(id uint64, _ func(string) bool) bool { return id < 100 }
func (fakeStacks) Whole(id uint64) bool                       { return id < 200 }

const (
	throughTorch = 1 + iota*100
	ofAnother
	truncated
)

// told counts the errors that a capture is told.
type told struct{ errors int }

func (j *told) Tell(ledger.Input) {}
func (j *told) Apply(e *ledger.Event) {
	if e.Op == ledger.OutOfMemory {
		j.errors++
	}
}

// run adds errors to a queue, and returns what it tells.
func run(capture ledger.Books, sites int, list ...Error) (got []string, q *Queue) {
	panics := &panics.List{}
	q = NewQueue(Options{
		Tell: func(e Error) {
			got = append(got, fmt.Sprint(e.PID, " ", e.Size, " recorded ", e.Record, " books ", e.Books != nil))
		},
		Capture: capture != nil, Sequencer: sequence.New(ledger.New(ledger.Options{Begin: 1}), capture, panics), Defects: panics, Stacks: fakeStacks{},
		HasTorch: func(pid uint32) bool { return pid < 10 },
		Books: func(*sequence.Tx, uint32, uint64) (*ledger.Snapshot, func()) {
			return &ledger.Snapshot{Sites: make([]ledger.Site, sites)}, nil
		},
	})
	tx := q.Sequencer.Begin()
	for i, e := range list {
		e.Time, e.Size = 1000+uint64(i), uint64(i)
		q.Add(tx, e)
	}
	tx.Done()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q.Run(ctx)
	return got, q
}

func TestErrorsThatPyTorchRetriesAreNotTold(t *testing.T) {
	capture := &told{}
	got, _ := run(capture, 1,
		Error{Event: oomevent.Event{PID: 7, API: "cudaMalloc", Stack: throughTorch}}, Error{Event: oomevent.Event{PID: 7, API: "cudaMalloc", Stack: truncated}},
		Error{Event: oomevent.Event{PID: 7, API: "torch", Stack: throughTorch}}, Error{Event: oomevent.Event{PID: 7, API: "cudaMalloc", Stack: ofAnother}},
		Error{Event: oomevent.Event{PID: 70, API: "cudaMalloc", Stack: truncated}}, Error{Event: oomevent.Event{PID: 70, API: "cudaMalloc", Stack: throughTorch}})
	want := []string{"7 2 recorded true books true", "7 3 recorded true books false", "70 4 recorded true books true"}
	if !slices.Equal(got, want) || capture.errors != len(want) {
		t.Errorf("told %q, and %d in the capture, want %q", got, capture.errors, want)
	}
}

func TestARetriedErrorTakesNoRecordOfOthers(t *testing.T) {
	var list []Error
	for range Records.OfProcess {
		list = append(list, Error{Event: oomevent.Event{PID: 70, API: "cudaMalloc", Stack: throughTorch}})
	}
	_, q := run(nil, 1, list...)
	for i := range Records.OfProcess {
		if !q.limiter.Allow(time.Unix(0, 0), 70, 0) {
			t.Errorf("there are %d records for the process after it, want %d", i, Records.OfProcess)
		}
	}
}

func TestLargeBooksAreNotTakenAgainSoSoon(t *testing.T) {
	failed := Error{Event: oomevent.Event{PID: 70, API: "cudaMalloc", Stack: ofAnother}}
	got, _ := run(nil, largeBooks+1, failed, failed, failed, failed)
	want := []string{"70 0 recorded true books true", "70 1 recorded true books false", "70 2 recorded true books false", "70 3 recorded false books false"}
	if !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestAFloodTakesNoPlacesOfOthers(t *testing.T) {
	var list []Error
	for range 2 * maxWaiting {
		list = append(list, Error{Event: oomevent.Event{PID: 70, API: "cudaMalloc", Stack: ofAnother}, User: 1})
	}
	got, q := run(nil, 1, append(list, Error{Event: oomevent.Event{PID: 80, API: "cudaMalloc", Stack: ofAnother}, User: 2})...)
	all, by := q.Lost()
	if last := got[len(got)-1]; last != fmt.Sprint("80 ", 2*maxWaiting, " recorded true books true") {
		t.Errorf("the error of another process is told as %q", last)
	}
	if all != by[70] || int(all)+len(got) != 2*maxWaiting+1 || by[80] != 0 {
		t.Errorf("%d told, %d lost, by process %v", len(got), all, by)
	}
}
