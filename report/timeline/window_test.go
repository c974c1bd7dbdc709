// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// windowOf has one snapshot a second, in which a process holds as many bytes as seconds passed.
// Another process ends after 10 s.
func windowOf(t *testing.T, seconds int) *Window {
	t.Helper()
	w := NewWindow(900e9)
	for i := 1; i <= seconds; i++ {
		w.Add(secondOf(uint64(i)))
		if n := len(w.b.t.Times); n > windowPoints || n != w.n {
			t.Fatalf("after %d s the window has %d moments", i, n)
		}
	}
	return w
}

func secondOf(i uint64) *ledger.Snapshot {
	s := &ledger.Snapshot{End: i * 1e9, Processes: []ledger.Process{{PID: 1}}, Sites: []ledger.Site{{Stack: 1, API: "cudaMalloc", Kind: ledger.Device, LiveBytes: i}}}
	if i < 600 { // then it leaves the books
		p := ledger.Process{PID: 2}
		if i >= 10 {
			p.End = 10e9
		}
		s.Processes = append(s.Processes, p)
		s.Sites = append(s.Sites, ledger.Site{Process: 1, Stack: 2, API: "cudaMalloc", Kind: ledger.Device, LiveBytes: 7})
	}
	return s
}

func TestWindowHasTheLatestMoments(t *testing.T) {
	tl := windowOf(t, 500).Timeline(nil)
	last := len(tl.Times) - 1
	if first, end := tl.Times[0], tl.Times[last]; first != 1e9 || end != 500e9 {
		t.Errorf("from %d to %d", first, end)
	}
	if len(tl.Processes) != 2 || len(tl.Rows) != 2 || len(tl.Sites) != 2 {
		t.Fatalf("%d processes, %d rows, %d sites", len(tl.Processes), len(tl.Rows), len(tl.Sites))
	}
	for i, at := range tl.Times {
		want := uint64(0)
		if at < 10e9 {
			want = 7
		}
		if got := tl.Rows[0].Driver[i]; got != at/1e9 {
			t.Errorf("at %d s: %d bytes", at/1e9, got)
		}
		if got := tl.Rows[1].Driver[i]; got != want {
			t.Errorf("at %d s the process that ended has %d bytes", at/1e9, got)
		}
		if got := tl.Sites[0].Live[i]; got != at/1e9 {
			t.Errorf("at %d s: a site of %d bytes", at/1e9, got)
		}
	}
}

func TestWindowForgetsWhatLeftIt(t *testing.T) {
	w := windowOf(t, 5000)
	tl := w.Timeline(nil)
	if len(tl.Processes) != 1 || len(tl.Rows) != 1 || len(tl.Sites) != 1 {
		t.Errorf("%d processes, %d rows, %d sites", len(tl.Processes), len(tl.Rows), len(tl.Sites))
	}
	if length := tl.Times[len(tl.Times)-1] - tl.Times[0]; length < 850e9 || length > 1100e9 {
		t.Errorf("the window is %d s long", length/1e9)
	}
	if got := tl.Rows[0].Driver[len(tl.Times)-1]; got != 5000 {
		t.Errorf("at the end: %d bytes", got)
	}
}

func TestWindowBeginsAnewAfterAGap(t *testing.T) {
	w := windowOf(t, 100)
	w.Add(secondOf(100 + windowGap/1e9 + 1))
	if n := len(w.Timeline(nil).Times); n != 1 {
		t.Errorf("%d moments", n)
	}
}

func TestWindowMarksErrors(t *testing.T) {
	tl := windowOf(t, 20).Timeline([]ledger.Event{{Op: ledger.OutOfMemory, Time: 15e9, PID: 1, Size: 5, API: "torch"}})
	n := 0
	for _, m := range tl.Marks {
		if m.Kind == OutOfMemory {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d errors are marked", n)
	}
}

func TestWindowBoundsSites(t *testing.T) {
	w := NewWindow(900e9)
	for i := range 50 {
		s := &ledger.Snapshot{End: uint64(i+1) * 1e9, Processes: []ledger.Process{{PID: 1}}}
		for k := range 2000 {
			s.Sites = append(s.Sites, ledger.Site{Stack: uint64(i*1000 + k), Kind: ledger.Device, LiveBytes: uint64(3000 - k)})
		}
		w.Add(s)
	}
	if n := len(w.b.t.Sites); n > 2*windowSites {
		t.Errorf("%d sites", n)
	}
}

// TestWindowShowsTheHighestOfEachInterval: the last moment is as of then, those before have the
// most since the moment before, by process, however many snapshots came between.
func TestWindowShowsTheHighestOfEachInterval(t *testing.T) {
	w := NewWindow(900e9)
	of := func(end uint64, first, second uint64) *ledger.Snapshot {
		s := &ledger.Snapshot{End: end, Processes: []ledger.Process{{PID: 1}, {PID: 2}}}
		for i, bytes := range []uint64{first, second} {
			s.Sites = append(s.Sites, ledger.Site{Process: i, Stack: uint64(i), API: "cudaMalloc", Kind: ledger.Device, LiveBytes: bytes})
			s.Processes[i].Totals = []ledger.Total{{Kind: ledger.Device, LiveBytes: bytes}}
		}
		return s
	}
	most := map[uint64][2]uint64{} // by second: the most that both processes had in the second before it
	for i := uint64(1); i <= 400; i++ {
		at := [2]uint64{100 + i*37%50, 100 + i*91%50}
		s := of(i*1e9, 3, 4)
		s.Highest = of(i*1e9, at[0], at[1])
		most[i] = at
		w.Add(s)
	}
	tl := w.Timeline(nil)
	last := len(tl.Times) - 1
	for k := 1; k <= last; k++ {
		var want [2]uint64
		for i := tl.Times[k-1]/1e9 + 1; i <= tl.Times[k]/1e9; i++ {
			want = [2]uint64{max(want[0], most[i][0]), max(want[1], most[i][1])}
		}
		if k == last {
			want = [2]uint64{3, 4}
		}
		if got := [2]uint64{tl.Rows[0].Driver[k], tl.Rows[1].Driver[k]}; got != want {
			t.Fatalf("at %d s: %v, want %v", tl.Times[k]/1e9, got, want)
		}
		for n := range tl.Sites {
			if x := &tl.Sites[n]; x.Live[k] != want[x.Process] {
				t.Fatalf("at %d s: a site of process %d has %d, want %d", tl.Times[k]/1e9, x.Process, x.Live[k], want[x.Process])
			}
		}
	}
	if last < 50 {
		t.Errorf("%d moments", last)
	}
}
