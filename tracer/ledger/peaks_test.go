// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// peakScript makes up the events of one process, in order and with times of their own, that may use
// PyTorch, and ends.
func peakScript(r *rand.Rand) (events []Event) {
	type block struct{ address, size, stack, device uint64 }
	var live []block
	var tensors, reserved [2]uint64
	torch, devices := r.IntN(2) == 0, 1+r.Uint64N(2)
	kinds := []Kind{Device, Async, Pinned, Managed}
	var list []block // tensors
	for at := uint64(1); at < 300; at++ {
		e := Event{PID: 7, TID: 7, Time: at, API: "f", Address: at << 24, Stack: 1 + r.Uint64N(5), Device: int32(r.Uint64N(devices)), Size: 512 << r.Uint64N(8)}
		grows := r.Uint64N(300) > at
		switch {
		case torch && r.IntN(2) == 0 && grows:
			e.Op, e.Kind, e.Space, e.Stack = Alloc, Tensor, Blocks, e.Stack+10
			list = append(list, block{e.Address, e.Size, e.Stack, uint64(e.Device)})
			tensors[e.Device] += e.Size
		case torch && len(list) > 0 && r.IntN(2) == 0:
			i := r.IntN(len(list))
			b := list[i]
			list = append(list[:i], list[i+1:]...)
			e.Op, e.Kind, e.Space, e.Address, e.Device = Free, Tensor, Blocks, b.address, int32(b.device)
			tensors[e.Device] -= b.size
		case grows:
			e.Op, e.Kind = Alloc, kinds[r.IntN(len(kinds))]
			if torch {
				e.Kind = Device
			}
			if torch && e.Stack < 3 {
				reserved[e.Device] += e.Size
			}
			live = append(live, block{e.Address, e.Size, e.Stack, uint64(e.Device)})
		case len(live) > 0:
			i := r.IntN(len(live))
			b := live[i]
			live = append(live[:i], live[i+1:]...)
			e.Op, e.Address = Free, b.address
			if torch && b.stack < 3 {
				reserved[b.device] -= b.size
			}
		default:
			continue
		}
		if e.Kind == Tensor {
			e.Told, e.Allocated, e.Reserved, e.Live = ToldAllocated|ToldLive, tensors[e.Device], 1<<40+reserved[e.Device], tensors[e.Device]
		}
		events = append(events, e)
	}
	return append(events, Event{Op: Exit, PID: 7, Time: 400})
}

// liveOf returns what the sites and totals of a snapshot have live.
func liveOf(s *Snapshot) map[string]uint64 {
	m := map[string]uint64{}
	for _, x := range s.Sites {
		at := fmt.Sprint("site ", x.Stack, " ", x.Kind, " ", x.Device)
		m[at] += x.LiveBytes
		m[at+" objects"] += x.LiveObjects
	}
	for _, x := range s.Processes[0].Totals {
		m[fmt.Sprint("total ", x.Kind, " ", x.Device)] = x.LiveBytes
	}
	for _, x := range s.Tensors {
		m[fmt.Sprint("tensors ", x.Device)] = x.Allocated
		m[fmt.Sprint("live ", x.Device)] = x.LiveBytes
		m[fmt.Sprint("segments ", x.Device)] = x.Segments
		m[fmt.Sprint("cache ", x.Device)] = x.Cached
	}
	maps.DeleteFunc(m, func(_ string, n uint64) bool { return n == 0 })
	return m
}

// TestThePeakIsThatOfAReplay: what sites and allocators keep lazily is what a replay finds that
// stops at the peak, also when the process's sites have been archived.
func TestThePeakIsThatOfAReplay(t *testing.T) {
	for seed := range uint64(300) {
		events := peakScript(rand.New(rand.NewPCG(seed, 1)))
		l := New(Options{})
		for i := range events {
			l.Apply(&events[i])
			if i%50 == 0 {
				l.Tell(UsageReading{Time: events[i].Time, Usages: []Usage{{PID: 7, UUID: "GPU-a", Bytes: 1 << 40}}})
			}
			l.Tell(Segments{1, 2})
		}
		if seed%2 == 0 {
			l.purge(20e9)
		}
		s := l.Snapshot(400, time.Time{})
		before := liveOf(s)
		if l.AddPeaks(s); len(s.Peaks) == 0 {
			continue // it had no memory of a GPU
		}
		peak := &s.Peaks[0]
		again := New(Options{})
		for i := range events {
			if events[i].Time <= peak.Time {
				again.Apply(&events[i])
				again.Tell(Segments{1, 2})
			}
		}
		want := liveOf(again.Snapshot(peak.Time, time.Time{}))
		if got := liveOf(peak.Books); !maps.Equal(got, want) {
			t.Fatalf("seed %d: at %d it held\n%v, a replay\n%v", seed, peak.Time, got, want)
		}
		if after := liveOf(l.Snapshot(400, time.Time{})); !maps.Equal(before, after) {
			t.Fatalf("seed %d: the books of now are\n%v, before the peak was looked at\n%v", seed, after, before)
		}
	}
}

// A process that allocates in several ways has its peak when the sum was highest.
func TestAPeakSumsAllKindsOnAGPU(t *testing.T) {
	l := New(Options{Begin: 1, unrounded: true})
	step := uint64(0)
	book := func(op Op, kind Kind, space Space, device int32, address, size uint64) {
		step += 10
		l.Apply(&Event{Op: op, Kind: kind, Space: space, PID: 5, TID: 5, Time: step, Device: device, Address: address, Size: size, Stack: uint64(kind), API: "f"})
	}
	book(Alloc, VMM, Physical, 0, 7, 100)
	book(Alloc, Device, Addresses, 0, 0x1000, 50)
	book(Alloc, Pinned, Addresses, 0, 0x2000, 1000)
	book(Alloc, Async, Addresses, 0, 0x3000, 25) // the peak
	book(Free, 0, Addresses, 0, 0x1000, 0)
	book(Alloc, Async, Addresses, 0, 0x4000, 49)
	book(Exit, 0, 0, UnknownDevice, 0, 0)
	s := l.Snapshot(step, time.Unix(0, 0))
	l.AddPeaks(s)
	if p := s.PeakOf(0); p == nil || p.Bytes != 175 || p.Time != 40 || len(p.Books.Sites) != 4 {
		t.Errorf("peak: %+v, want 175 bytes after 40 ns, with 4 sites", p)
	}
	if p := &s.Processes[0]; p.PeakBytes != 175 || p.PeakTime != 40 {
		t.Errorf("the process has its peak of %d bytes after %d ns, want 175 after 40", p.PeakBytes, p.PeakTime)
	}
}

// TestPeakTimesAreThoseOfTheHighestPeaks: of tensors where PyTorch reports them, each once, in
// order.
func TestPeakTimesAreThoseOfTheHighestPeaks(t *testing.T) {
	s := &Snapshot{
		Processes: []Process{
			{PeakBytes: 50, PeakTime: 9, Totals: []Total{{Device: 0, Kind: Device, PeakBytes: 90, PeakTime: 7}}}, // segments
			{PeakBytes: 40, PeakTime: 3, Totals: []Total{{Device: 0, Kind: Device, PeakBytes: 40, PeakTime: 3}, {Device: 1, Kind: Device, PeakBytes: 30, PeakTime: 5}, {Device: 1, Kind: Pinned, PeakBytes: 99, PeakTime: 1}}},
			{},
		},
		Tensors: []Tensors{{Device: 0, Peak: 50, PeakTime: 9}, {Device: 1, Peak: 20, PeakTime: 8}, {Device: CPUDevice, Peak: 99, PeakTime: 2}},
	}
	for most, want := range map[int][]uint64{9: {3, 5, 8, 9}, 2: {3, 9}, 0: nil} {
		if got := PeakTimes(s, most); !slices.Equal(got, want) {
			t.Errorf("%d times: %v, want %v", most, got, want)
		}
	}
}
