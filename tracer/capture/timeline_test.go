// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestATimelineShowsTheBooksOfItsMoments: it is played in one pass that looks ahead, and has at
// each of its moments what a pass has that plays from moment to moment.
func TestATimelineShowsTheBooksOfItsMoments(t *testing.T) {
	for name, file := range map[string]*memory{
		"hostile": hostile(t, 3), "long": longSession(t), "opening": openingOf(t),
	} {
		r := file.read(t)
		_, got, sizes, err := timelineOf(r)
		if err != nil {
			t.Fatal(err)
		}
		l := r.NewLedger()
		want, counted, err := timeline.Build(r.Player(), got.Times, l, func(at uint64) *ledger.Snapshot { return r.SnapshotOf(l, at) })
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Times) < 100 || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(sizes, counted) {
			t.Errorf("%s: %d moments; the timeline differs from the books", name, len(got.Times))
			for i := range got.Rows {
				if i < len(want.Rows) && !reflect.DeepEqual(got.Rows[i], want.Rows[i]) {
					t.Errorf("row %d: %+v\nwant %+v", i, got.Rows[i], want.Rows[i])
				}
			}
		}
	}
}

func hostile(t *testing.T, seed uint64) *memory {
	file := &memory{}
	if _, err := record(t, seed, 3000, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// longSession has more events than a timeline looks ahead, beside readings that came before older
// events.
func longSession(t *testing.T) *memory {
	file := &memory{}
	w, err := NewWriter(file, Options{Interval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w.Tell(ledger.Begin{Time: sessionBegin})
	w.Tell(ledger.GPUs{{UUID: "GPU-a", Total: 80 << 30}})
	for i, e := range generate(80_000) {
		if i%997 == 0 {
			w.Tell(ledger.UsageReading{Time: e.Time + 40_000, Usages: []ledger.Usage{{PID: 4242, UUID: "GPU-a", Bytes: 2<<30 + uint64(i)<<10}}})
		}
		if i%3000 == 0 {
			w.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 4242, TID: 9, Time: e.Time, Address: 0x10000<<20 + uint64(i)<<20, Size: 5 << 20, Stack: 3, API: "cudaMalloc"})
		}
		e.Told, e.Allocated, e.Reserved = ledger.ToldAllocated, e.Size*50, 2<<30
		w.Apply(&e)
	}
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	return file
}

// openingOf is the second capture of a session.
func openingOf(t *testing.T) *memory {
	before := ledger.New(ledger.Options{Begin: sessionBegin})
	list := generate(6000)
	for i := range list[:4000] {
		before.Apply(&list[i])
	}
	now := &clock{now: list[4000].Time}
	file := &memory{}
	w, err := NewWriter(file, Options{Interval: time.Hour, Clock: now.read, Part: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Open(before.Opening)
	for i := range list[4000:] {
		now.set(list[4000+i].Time)
		w.Apply(&list[4000+i])
	}
	if err := w.End(nil); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestATimelineStopsAtALimit of its books, which play inputs later than the capture is read.
func TestATimelineStopsAtALimit(t *testing.T) {
	f := newForger(t)
	forgeries["allocators"](f, 8000)
	var limit *LimitError
	if err := use(f.bytes(), "page"); !errors.As(err, &limit) {
		t.Errorf("the error is %v", err)
	}
}
