// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestACaptureThatBeginsWithAnOpeningShowsWhatTheSessionDoes up to its end: memory from before it
// was begun, and what happens to that later.
func TestACaptureThatBeginsWithAnOpeningShowsWhatTheSessionDoes(t *testing.T) {
	l := ledger.New(ledger.Options{Begin: 5})
	both := func(books []ledger.Books, from, to uint64) {
		for i := from; i < to; i++ {
			for _, b := range books {
				b.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: 10 + i, Address: 0x1000 * (i + 1), Size: 100 + i, Stack: 1 + i%7, API: "cudaMalloc"})
				if i > 100 {
					b.Apply(&ledger.Event{Op: ledger.Free, PID: 7, Time: 10 + i, Address: 0x1000 * (i - 99)})
				}
			}
		}
	}
	l.Tell(ledger.Process{PID: 7, Comm: "train\x1b", Begin: 6})
	both([]ledger.Books{l}, 0, 1000)
	file := &memory{}
	w, err := NewWriter(file, Options{Clock: func() uint64 { return 1009 }, Part: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Open(l.Opening)
	both([]ledger.Books{l, w}, 1000, 1500)
	if err := w.End(l.Snapshot(2000, time.Time{})); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(bytes.NewReader(file.b), int64(len(file.b)))
	if err != nil {
		t.Fatal(err)
	}
	books := r.NewLedger()
	if err := r.Player().PlayTo(math.MaxUint64, books); err != nil {
		t.Fatal(err)
	}
	got, want := books.Snapshot(2000, time.Time{}), l.Snapshot(2000, time.Time{})
	if got.Opened != 1009 || got.Begin != 5 || got.Processes[0].Comm != "train?" && got.Processes[0].Comm != "train" {
		t.Errorf("opened at %d, begun at %d, process %q", got.Opened, got.Begin, got.Processes[0].Comm)
	}
	got.Opened, got.Host, got.Processes[0].Comm, want.Processes[0].Comm = 0, "", "", ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("books\n%+v, want\n%+v", got, want)
	}
	if len(r.Warnings()) > 0 {
		t.Error(r.Warnings())
	}
}

// BenchmarkOpening writes the opening of a session with 1,000,000 live allocations of 10,000 sites.
// The time is that of the caller, in whose transaction nothing else is booked.
func BenchmarkOpening(b *testing.B) {
	l := ledger.New(ledger.Options{Begin: 1})
	for i := range uint64(1e6) {
		l.Apply(&ledger.Event{
			Op: ledger.Alloc, Kind: ledger.Device, PID: uint32(1 + i%4), Time: 100 + 1000*i, Address: 0x7f0000000000 + i*0x200000, Size: 512 * (1 + i%100),
			Stack: 1 + i*0x9e3779b97f4a7c15%2500, API: "cudaMalloc",
		})
	}
	for b.Loop() {
		b.StopTimer()
		file := &memory{}
		w, err := NewWriter(file, Options{Part: 1})
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		w.Open(l.Opening)
		b.StopTimer()
		if err := w.End(nil); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(len(file.b)), "bytes")
		b.StartTimer()
	}
}
