// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// momentsOf plays a session for its moments alone.
func momentsOf(s *script, begin, end uint64, steps int) []uint64 {
	u := newInUse(momentsAt(&script{list: s.list}, begin, end, steps))
	_ = s.PlayTo(end, u)
	return u.moments(end)
}

// momentsAt returns the moments for a timeline of a session, with the peaks of its ledger.
func momentsAt(s *script, begin, end uint64, steps int) Moments {
	l := ledger.New(ledger.Options{})
	_ = s.PlayTo(end, l)
	return Moments{Begin: begin, End: end, Steps: steps, Peaks: ledger.PeakTimes(l.Snapshot(end, time.Time{}), MaxPeaks)}
}

// training is a random session: processes with PyTorch on two devices, whose memory rises and
// falls, beside driver allocations, readings, exits and out-of-memory errors.
type training struct {
	rng  *rand.Rand
	list []input
	now  uint64
	live map[uint32][]uint64 // addresses of driver allocations
}

func newTraining(seed uint64, events int) *script {
	x := &training{rng: rand.New(rand.NewPCG(seed, 1)), live: map[uint32][]uint64{}}
	x.list = append(x.list, input{1, func(b ledger.Books) { b.Tell(ledger.GPUs{{UUID: "GPU-a"}, {UUID: "GPU-b"}}) }})
	for len(x.list) < events {
		x.step(uint32(7 + x.rng.Uint64N(6)))
	}
	return &script{list: x.list}
}

func (x *training) step(pid uint32) {
	r, device := x.rng, int32(pid%2)
	x.now += 1 + r.Uint64N(1000)
	if r.Uint64N(100) == 0 {
		x.now += 20_000 // steps in which nothing happens
	}
	switch n := r.Uint64N(40); {
	case n == 0:
		x.list = append(x.list, usage(x.now, r.Uint64N(1<<20)))
	case n == 1:
		at := x.now
		x.list = append(x.list, input{at, func(b ledger.Books) {
			b.Tell(ledger.TensorReading{Time: at, Totals: []ledger.TensorTotals{{PID: pid, Device: device, Allocated: at % 5000, Reserved: 6000, Live: at % 5000}}})
		}})
	case n == 2 && r.Uint64N(8) == 0:
		x.list = append(x.list, event(ledger.Event{Op: ledger.Exit, PID: pid, Time: x.now}))
		delete(x.live, pid)
	case n == 3:
		x.list = append(x.list, event(ledger.Event{Op: ledger.OutOfMemory, Kind: ledger.Device, PID: pid, Device: device, Time: x.now, Size: 1 << 30, Stack: 5, API: "cudaMalloc"}))
	case n < 12:
		address := x.now << 9
		x.live[pid] = append(x.live[pid], address)
		kind := []ledger.Kind{ledger.Device, ledger.Device, ledger.Managed, ledger.Pinned}[r.Uint64N(4)]
		x.list = append(x.list, event(ledger.Event{Op: ledger.Alloc, Kind: kind, PID: pid, Device: device, Time: x.now, Address: address, Size: r.Uint64N(10_000), Stack: 1 + r.Uint64N(20), API: "cudaMalloc"}))
		if r.Uint64N(2) == 0 { // PyTorch reports what it took it for
			x.now += r.Uint64N(3)
			x.told(pid, device)
		}
	case n < 20 && len(x.live[pid]) > 0:
		i := r.IntN(len(x.live[pid]))
		x.list = append(x.list, event(ledger.Event{Op: ledger.Free, PID: pid, Time: x.now, Address: x.live[pid][i]}))
		x.live[pid] = append(x.live[pid][:i], x.live[pid][i+1:]...)
	default:
		x.told(pid, device)
	}
}

func (x *training) told(pid uint32, device int32) {
	allocated := x.rng.Uint64N(50_000)
	x.list = append(x.list, event(ledger.Event{
		Op: ledger.Totals, Kind: ledger.Tensor, Space: ledger.Blocks, PID: pid, Device: device, Time: x.now,
		Told: ledger.ToldAllocated | ledger.ToldLive, Allocated: allocated, Reserved: 50_000, Live: allocated,
	}))
}

// TestOnePassShowsWhatTwoDo: in random sessions, one pass of a few inputs at a time gives the same
// timeline as a pass that only looks for its moments and another that shows them. So does one that
// searches the session once it had to replace too many snapshots.
func TestOnePassShowsWhatTwoDo(t *testing.T) {
	replaced, searched := 0, 0
	for seed := range uint64(10) {
		n := 200 + int(seed%5)*600
		s := newTraining(seed, n)
		end := s.list[len(s.list)-1].time + 500
		begin := end / 5 * (seed % 2)
		times := momentsOf(newTraining(seed, n), begin, end, 30)
		l := ledger.New(ledger.Options{})
		want, sizes, err := Build(newTraining(seed, n), times, l, levelsOf(l, end))
		if err != nil {
			t.Fatal(err)
		}
		for i, most := range []int{60, 300, lookAhead, 60, 300} {
			taken := 0
			l := ledger.New(ledger.Options{})
			take := levelsOf(l, end)
			a := newAhead(newTraining(seed, n), newInUse(momentsAt(newTraining(seed, n), begin, end, 30)), l, func(at uint64) *ledger.Snapshot { taken++; return take(at) })
			if i > 2 {
				a.scout = newTraining(seed, n)
			}
			got, counted, err := a.play(most)
			if err != nil {
				t.Fatal(err)
			}
			if a.known {
				searched++
			}
			if !reflect.DeepEqual(counted, sizes) || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, %d at a time:\n%s", seed, most, differing(got, want))
			}
			if most == lookAhead && taken != len(times) {
				t.Errorf("seed %d: %d snapshots of %d moments, though all inputs fit", seed, taken, len(times))
			}
			replaced += taken - len(times)
		}
	}
	if replaced == 0 || searched == 0 {
		t.Errorf("%d moments were replaced by a later peak, and %d sessions searched as a whole", replaced, searched)
	}
}

// levelsOf takes snapshots as commands do: a whole one of the end.
func levelsOf(l *ledger.Ledger, end uint64) func(at uint64) *ledger.Snapshot {
	return func(at uint64) *ledger.Snapshot {
		if at == end {
			return l.Snapshot(at, time.Time{})
		}
		return l.Levels(at, time.Time{})
	}
}

// differing returns the first elements in which timelines differ.
func differing(got, want *Timeline) (text string) {
	a, b := reflect.ValueOf(*got), reflect.ValueOf(*want)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.Len() != y.Len() {
			text += fmt.Sprintf("%d %s, want %d\n", x.Len(), a.Type().Field(i).Name, y.Len())
		}
		for k := range min(x.Len(), y.Len()) {
			if x, y := x.Index(k).Interface(), y.Index(k).Interface(); !reflect.DeepEqual(x, y) {
				text += fmt.Sprintf("%s %d:\n%+v\nwant\n%+v\n", a.Type().Field(i).Name, k, x, y)
				break
			}
		}
	}
	return text
}

// TestInputsThatWaitAreBounded: by segments that nobody reports anything of, by events of one time,
// by readings without events. All inputs are played, and the peak is shown.
func TestInputsThatWaitAreBounded(t *testing.T) {
	alloc := func(time, address, size uint64) input {
		return event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: time, Address: address, Size: size, Stack: 1, API: "cudaMalloc"})
	}
	for name, next := range map[string]func(i uint64) input{
		"an open segment": func(i uint64) input {
			return event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 8, Time: 10 + i, Address: i << 9, Size: 1, Stack: 1, API: "cudaMalloc"})
		},
		"one time": func(i uint64) input { return alloc(10, 0x10_000_000+i<<9, 1) },
		"readings": func(i uint64) input { return usage(10+i*eventLag/100, 5000) },
	} {
		list := []input{begins(1, 7), told(2, 7, 0, 5000), alloc(10, 0x1000, 3000)}
		for i := range uint64(20_000) {
			list = append(list, next(i))
		}
		last := list[len(list)-1].time
		list = append(list, event(ledger.Event{Op: ledger.Free, Time: last + 1, Address: 0x1000}))
		l, most := ledger.New(ledger.Options{}), 0
		var a *ahead
		a = newAhead(&script{list: list}, newInUse(momentsAt(&script{list: list}, 0, last+10, 20)), l, func(at uint64) *ledger.Snapshot {
			most = max(most, a.waiting())
			return l.Levels(at, time.Time{})
		})
		got, sizes, err := a.play(500)
		if err != nil {
			t.Fatal(err)
		}
		if most > 3*500 || a.waiting() != 0 {
			t.Errorf("%s: %d inputs waited, and %d at the end", name, most, a.waiting())
		}
		wantPeak, wantCount := uint64(3000), uint64(1)
		if name == "one time" {
			wantPeak, wantCount = 23_000, 20_001
		}
		if name == "an open segment" {
			wantCount = 20_001
		}
		var peak, count uint64
		for i := range got.Times {
			if got.Rows[0].Driver[i] > peak {
				peak = got.Rows[0].Driver[i]
			}
		}
		for i := range sizes.Driver {
			count += sizes.Driver[i].Count
		}
		if peak != wantPeak || count != wantCount {
			t.Errorf("%s: a peak of %d in %d allocations, want %d in %d", name, peak, count, wantPeak, wantCount)
		}
	}
}

// broken is a session that cannot be read to its end.
type broken struct{ *script }

func (b broken) PlayTo(time uint64, into ledger.Books) error {
	_ = b.script.PlayTo(time/2, into)
	return errors.New("input/output error")
}

func TestAnErrorOfReadingEndsATimeline(t *testing.T) {
	l := ledger.New(ledger.Options{})
	if _, _, err := Play(broken{job()}, broken{job()}, Moments{End: 1000, Steps: 10}, l, func(at uint64) *ledger.Snapshot { return l.Levels(at, time.Time{}) }); err == nil || err.Error() != "play: input/output error" {
		t.Errorf("the error is %v", err)
	}
}

// TestPageLockedMemoryIsOnTheFirstRow of its process, whichever row was seen first. A page adds it
// to the sites of that row.
func TestPageLockedMemoryIsOnTheFirstRow(t *testing.T) {
	alloc := func(time, address uint64, kind ledger.Kind, device int32) input {
		return event(ledger.Event{Op: ledger.Alloc, Kind: kind, Device: device, Time: time, Address: address, Size: 100, Stack: 1, API: "cudaMalloc"})
	}
	for name, list := range map[string][]input{
		"before any GPU":         {alloc(10, 0x1000, ledger.Pinned, ledger.UnknownDevice), alloc(20, 0x2000, ledger.Device, 1), alloc(30, 0x3000, ledger.Device, 0)},
		"before an earlier one":  {alloc(10, 0x2000, ledger.Device, 1), alloc(20, 0x1000, ledger.Pinned, ledger.UnknownDevice), alloc(30, 0x3000, ledger.Device, 0)},
		"beside an unknown GPU":  {alloc(10, 0x2000, ledger.Device, ledger.UnknownDevice), alloc(20, 0x1000, ledger.Pinned, 0), alloc(30, 0x3000, ledger.Device, 0), alloc(40, 0x4000, ledger.Device, 1)},
		"with nothing on a GPU":  {alloc(10, 0x1000, ledger.Pinned, ledger.UnknownDevice)},
		"on one GPU that it has": {alloc(10, 0x3000, ledger.Device, 0), alloc(20, 0x1000, ledger.Pinned, 0)},
	} {
		l := ledger.New(ledger.Options{})
		got, _, err := Build(&script{list: list}, []uint64{0, 15, 25, 50}, l, func(at uint64) *ledger.Snapshot { return l.Snapshot(at, time.Time{}) })
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range got.Rows {
			if (r.Host[3] == 100) != (i == 0) || r.Device == ledger.UnknownDevice && r.empty() {
				t.Errorf("%s: row %d of %d is %+v", name, i, len(got.Rows), r)
			}
		}
		if len(got.Rows) == 0 || len(list) > 2 && len(got.Rows) != len(list)-1 {
			t.Errorf("%s: %d rows", name, len(got.Rows))
		}
	}
}
