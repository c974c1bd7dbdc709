// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
)

// told is a capture that keeps what it is told.
type told struct{ list []string }

func (j *told) Apply(e *ledger.Event) { j.list = append(j.list, fmt.Sprint("event ", e.Address)) }
func (j *told) Tell(in ledger.Input)  { j.list = append(j.list, fmt.Sprintf("%T", in)) }

func newDesk(capture ledger.Books) *Sequencer {
	return New(ledger.New(ledger.Options{Begin: 1}), capture, &panics.List{})
}

// TestReadingsAreTakenBetweenTheEventsBeforeAndAfterThem, in the order of their times, whoever made
// them first.
func TestReadingsAreTakenBetweenTheEventsBeforeAndAfterThem(t *testing.T) {
	d := newDesk(nil)
	d.BeginEvents()
	tx := d.Begin()
	defer tx.Done()
	var got []uint64
	for _, time := range []uint64{30, 10, 20, 20, 40} {
		tx.Read("a reading", time, func(*Tx) { got = append(got, time) })
	}
	for _, step := range []struct {
		event uint64
		want  []uint64
	}{{10, nil}, {11, []uint64{10}}, {25, []uint64{10, 20, 20}}, {5, []uint64{10, 20, 20}}, {31, []uint64{10, 20, 20, 30}}} {
		if tx.Passed(step.event); !slices.Equal(got, step.want) {
			t.Fatalf("before the event at %d: %v, want %v", step.event, got, step.want)
		}
	}
	if tx.TakeAll(); len(got) != 5 || tx.upTo != 31 {
		t.Errorf("in the end %v, and all events up to %d", got, tx.upTo)
	}
}

func TestReadingsDoNotWaitWhereNobodyReadsEvents(t *testing.T) {
	d := newDesk(nil)
	tx := d.Begin()
	taken := 0
	tx.Read("a reading", 1<<63, func(*Tx) { taken++ })
	tx.Read("a reading", 5, func(*Tx) { panic("a defect") })
	tx.Done()
	if w := d.defects.Warnings(); taken != 1 || len(w) != 1 {
		t.Errorf("taken %d times, warnings %q", taken, w)
	}
}

// TestReadingsWaitForEventsThatComeBeforeTheReadersTurn: the ring was empty, but while its reader
// waits for a transaction, an event comes and then a reading is made.
func TestReadingsWaitForEventsThatComeBeforeTheReadersTurn(t *testing.T) {
	d := newDesk(nil)
	d.BeginEvents()
	tx := d.Begin()
	empty, noted := clock.Now(), make(chan struct{})
	go func() {
		defer close(noted)
		d.RingWasEmpty(empty)
	}()
	taken := 0
	tx.Read("a reading", clock.Now(), func(*Tx) { taken++ })
	time.Sleep(5 * time.Millisecond) // longer than an event takes to the ring
	tx.Done()
	<-noted
	if taken != 0 {
		t.Error("the reading was booked before the event")
	}
}

func TestSettleReturnsWhenTheRingWasEmpty(t *testing.T) {
	d := newDesk(nil)
	d.BeginEvents()
	moment, began := clock.Now(), time.Now()
	var read sync.Once
	d.Settle(moment, func() {
		read.Do(func() {
			time.Sleep(2 * time.Millisecond) // longer than an event takes to the ring
			d.RingWasEmpty(clock.Now())
		})
	})
	if took := time.Since(began); took >= settleWithin {
		t.Errorf("it took %v", took)
	}
}

func TestCaptureIsToldAllInTheOrderOfTheBooks(t *testing.T) {
	capture := &told{}
	d := newDesk(capture)
	d.Tell(ledger.Process{PID: 7, Comm: "p", Begin: 1})
	tx := d.Begin()
	for i := range uint64(4) {
		tx.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: 2 + i, Address: i + 1, Size: 1000, Stack: 1 + i%2})
	}
	asked := 0
	tx.MarkSegments(func(stack uint64) bool { asked++; return stack == 1 })
	tx.Done()
	want := []string{"ledger.Process", "event 1", "event 2", "event 3", "event 4", "ledger.Segments"}
	if !slices.Equal(capture.list, want) || asked != 2 {
		t.Errorf("the capture was told %q, asked %d times", capture.list, asked)
	}
}
