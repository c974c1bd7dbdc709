// SPDX-License-Identifier: Apache-2.0

package booking

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

func newDesk(capture ledger.Books) *Desk {
	return New(ledger.New(ledger.Options{Begin: 1}), capture, &panics.List{})
}

// TestReadingsAreTakenBetweenTheEventsBeforeAndAfterThem, in the order of their times, whoever made
// them first.
func TestReadingsAreTakenBetweenTheEventsBeforeAndAfterThem(t *testing.T) {
	d := newDesk(nil)
	d.BeginEvents()
	turn := d.Take()
	defer turn.Done()
	var got []uint64
	for _, time := range []uint64{30, 10, 20, 20, 40} {
		turn.Read("a reading", time, func(*Turn) { got = append(got, time) })
	}
	for _, step := range []struct {
		event uint64
		want  []uint64
	}{{10, nil}, {11, []uint64{10}}, {25, []uint64{10, 20, 20}}, {5, []uint64{10, 20, 20}}, {31, []uint64{10, 20, 20, 30}}} {
		if turn.Passed(step.event); !slices.Equal(got, step.want) {
			t.Fatalf("before the event at %d: %v, want %v", step.event, got, step.want)
		}
	}
	if turn.TakeAll(); len(got) != 5 || turn.upTo != 31 {
		t.Errorf("in the end %v, and all events up to %d", got, turn.upTo)
	}
}

func TestReadingsDoNotWaitWhereNobodyReadsEvents(t *testing.T) {
	d := newDesk(nil)
	turn := d.Take()
	taken := 0
	turn.Read("a reading", 1<<63, func(*Turn) { taken++ })
	turn.Read("a reading", 5, func(*Turn) { panic("a defect") })
	turn.Done()
	if w := d.defects.Warnings(); taken != 1 || len(w) != 1 {
		t.Errorf("taken %d times, warnings %q", taken, w)
	}
}

// TestReadingsWaitForEventsThatComeBeforeTheReadersTurn: the ring was empty, but while its reader
// waits for a turn, an event comes and then a reading is made.
func TestReadingsWaitForEventsThatComeBeforeTheReadersTurn(t *testing.T) {
	d := newDesk(nil)
	d.BeginEvents()
	turn := d.Take()
	empty, noted := clock.Now(), make(chan struct{})
	go func() {
		defer close(noted)
		d.RingWasEmpty(empty)
	}()
	taken := 0
	turn.Read("a reading", clock.Now(), func(*Turn) { taken++ })
	time.Sleep(5 * time.Millisecond) // longer than an event takes to the ring
	turn.Done()
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
	turn := d.Take()
	for i := range uint64(4) {
		turn.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: 2 + i, Address: i + 1, Size: 1000, Stack: 1 + i%2})
	}
	asked := 0
	turn.MarkSegments(func(stack uint64) bool { asked++; return stack == 1 })
	turn.Done()
	want := []string{"ledger.Process", "event 1", "event 2", "event 3", "event 4", "ledger.Segments"}
	if !slices.Equal(capture.list, want) || asked != 2 {
		t.Errorf("the capture was told %q, asked %d times", capture.list, asked)
	}
}
