// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// input is one call of the books' methods.
type input struct {
	time uint64
	give func(ledger.Books)
}

// script plays inputs; it is one session.
type script struct {
	list []input
	next int
}

func (s *script) PlayTo(time uint64, into ledger.Books) error {
	for ; s.next < len(s.list) && s.list[s.next].time <= time; s.next++ {
		s.list[s.next].give(into)
	}
	return nil
}

func (s *script) Time() uint64 { return s.list[s.next].time }

func (s *script) Err() error { return nil }

func event(e ledger.Event) input {
	e.PID = max(e.PID, 7)
	return input{e.Time, func(b ledger.Books) { b.Apply(&e) }}
}

func usage(time, bytes uint64) input {
	return input{time, func(b ledger.Books) {
		b.Tell(ledger.UsageReading{Time: time, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: bytes}}})
	}}
}

const page = 2 << 20 // of the driver

func pages(list ...uint64) []uint64 {
	for i := range list {
		list[i] *= page
	}
	return list
}

// job: 300 pages of context, 1000 from 200 on, 4000 more from 500 to 700, 64 bytes pinned, 60000
// managed from 220 to 450, an OOM at 800.
func job() *script {
	return &script{list: []input{
		{1, func(b ledger.Books) {
			b.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: 1})
			b.Tell(ledger.Devices{PID: 7, UUIDs: []string{"GPU-a"}})
		}},
		usage(2, 300*page),
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: 200, Address: 0x100000000, Size: 1000 * page, Stack: 1, API: "cudaMalloc"}),
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Pinned, Time: 210, Address: 0x9000, Size: 64, Stack: 3, API: "cudaHostAlloc"}),
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Managed, Time: 220, Address: 0xa000, Size: 60000, Stack: 4, API: "cudaMallocManaged"}),
		usage(300, 1300*page),
		event(ledger.Event{Op: ledger.Free, Time: 450, Address: 0xa000}),
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: 500, Address: 0x300000000, Size: 4000 * page, Stack: 2, API: "cudaMalloc"}),
		usage(550, 5300*page),
		event(ledger.Event{Op: ledger.Free, Time: 700, Address: 0x300000000}),
		usage(750, 1300*page),
		event(ledger.Event{Op: ledger.OutOfMemory, Kind: ledger.Device, Time: 800, Size: 9000 * page, Stack: 2, API: "cudaMalloc"}),
	}}
}

func of(s *script) (*Timeline, *Sizes, error) {
	l := ledger.New(ledger.Options{})
	times := []uint64{0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}
	return Build(s, times, l, func(at uint64) *ledger.Snapshot { return l.Snapshot(at, time.Time{}) })
}

func TestATimelineShowsWhatTheBooksSaidAtEachStep(t *testing.T) {
	got, sizes, err := of(job())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Rows) != 1 || len(got.Times) != 11 || got.Times[10] != 1000 {
		t.Fatalf("got %d rows, times %v", len(got.Rows), got.Times)
	}
	r := got.Rows[0]
	for name, c := range map[string]struct{ got, want []uint64 }{
		"usage":   {r.Usage, pages(0, 300, 1300, 1300, 1300, 5300, 5300, 1300, 1300, 1300, 1300)},
		"driver":  {r.Driver, pages(0, 0, 1000, 1000, 1000, 5000, 5000, 1000, 1000, 1000, 1000)},
		"before":  {r.Before, pages(0, 300, 300, 300, 300, 300, 300, 300, 300, 300, 300)},
		"host":    {r.Host, []uint64{0, 0, 0, 64, 64, 64, 64, 64, 64, 64, 64}},
		"managed": {r.Managed, []uint64{0, 0, 0, 60000, 60000, 0, 0, 0, 0, 0, 0}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	for i := range got.Times {
		if sum := int64(r.Tensors[i] + r.Cached[i] + r.Driver[i] + r.Rounding[i] + r.Before[i] + r.Unexplained[i]); sum != int64(r.Usage[i]) {
			t.Errorf("step %d: the parts have %d of %d", i, sum, r.Usage[i])
		}
	}
	var kinds []MarkKind
	for _, m := range got.Marks {
		kinds = append(kinds, m.Kind)
	}
	if !slices.Equal(kinds, []MarkKind{Began, Large, Large, OutOfMemory}) || got.Marks[3].Size != 9000*page {
		t.Errorf("marks %+v", got.Marks)
	}
	if got.Sites[0].Stack != 1 || got.Sites[0].Live[10] != 1000*page || got.Sites[0].Live[1] != 0 {
		t.Errorf("the first site is %+v", got.Sites[0])
	}
	if sizes.Driver[30].Count != 1 || sizes.Driver[32].Bytes != 4000*page || sizes.Driver[6].Count != 1 {
		t.Errorf("sizes %+v", sizes.Driver)
	}
	again, _, err := of(job())
	if err != nil || !reflect.DeepEqual(got, again) {
		t.Errorf("a second time it is %+v, %v", again, err)
	}
}

func TestAnEndedProcessHoldsNothingAfterItsEnd(t *testing.T) {
	s := job()
	s.list = append(s.list, event(ledger.Event{Op: ledger.Exit, Time: 850}))
	got, _, err := of(s)
	if err != nil {
		t.Fatal(err)
	}
	if r := got.Rows[0]; r.Usage[8] == 0 || r.Usage[9] != 0 || r.Driver[10] != 0 {
		t.Errorf("usage %v, driver %v", r.Usage, r.Driver)
	}
	for _, x := range got.Sites {
		if x.Live[10] != 0 {
			t.Errorf("stack %d holds %d", x.Stack, x.Live[10])
		}
	}
	if m := got.Marks[len(got.Marks)-1]; m.Kind != Ended || m.Time != 850 {
		t.Errorf("the last mark is %+v", m)
	}
}

// TestAForgottenProcessHasEnded, though no moment shows its end.
func TestAForgottenProcessHasEnded(t *testing.T) {
	s := job()
	s.list = append(s.list,
		event(ledger.Event{Op: ledger.Exit, Time: 850}),
		input{860, func(b ledger.Books) { b.Tell(ledger.Forget{Before: 10e9}) }},
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 8, Time: 950, Address: 0x1000, Size: 10, API: "cudaMalloc"}), // with its number
	)
	got, _, err := of(s)
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Processes; len(p) != 2 || p[0].PID != 7 || p[0].End != 900 || p[1].PID != 8 || p[1].End != 0 {
		t.Errorf("processes %+v", p)
	}
	if r := got.Rows[0]; r.Usage[8] == 0 || r.Usage[9] != 0 || r.Driver[10] != 0 {
		t.Errorf("usage %v, driver %v", r.Usage, r.Driver)
	}
}

func TestSizesOfTensorsAreCountedOverRestarts(t *testing.T) {
	var s Sizes
	give := func(allocs uint64) {
		s.tensors(&ledger.TensorTotals{PID: 7, Classes: []ledger.ClassTotals{{}, {Allocs: allocs, AllocBytes: allocs * 512}}})
	}
	for _, allocs := range []uint64{10, 25, 3 /* another process */, 5} {
		give(allocs)
	}
	if b := s.Tensors[9]; b.Count != 30 || b.Bytes != 30*512 {
		t.Errorf("got %+v, want 30", b)
	}
}
