// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func told(time uint64, pid uint32, allocated, reserved uint64) input {
	return event(ledger.Event{Op: ledger.Totals, Kind: ledger.Tensor, Space: ledger.Blocks, PID: pid, Time: time, Told: ledger.ToldAllocated | ledger.ToldLive, Allocated: allocated, Reserved: reserved, Live: allocated})
}

func begins(time uint64, pid uint32) input {
	return event(ledger.Event{Op: ledger.Allocator, Kind: ledger.Tensor, Space: ledger.Blocks, PID: pid, Time: time})
}

// TestATimelineShowsEachPeakHoweverShort: bursts out of PyTorch's cache, of which even steps would
// show nothing.
func TestATimelineShowsEachPeakHoweverShort(t *testing.T) {
	list := []input{
		begins(1, 7), told(2, 7, 0, 5000), begins(1, 8), told(2, 8, 0, 100),
		told(10_005, 7, 2500, 5000), told(10_006, 7, 10, 5000),
		told(50_001, 7, 2600, 5000), told(50_002, 7, 10, 5000),
		told(50_003, 8, 90, 100), told(50_004, 8, 0, 100), // small, and in the same step
		told(80_000, 7, 2400, 5000), told(80_001, 7, 10, 5000),
	}
	times := momentsOf(&script{list: list}, 0, 100_000, 12)
	for _, want := range []uint64{0, 10_005, 50_001, 50_003, 80_000, 100_000} {
		if !slices.Contains(times, want) {
			t.Errorf("%d is not among the moments %v", want, times)
		}
	}
	if !slices.IsSorted(times) || len(slices.Compact(slices.Clone(times))) != len(times) || len(times) > 12+2 {
		t.Errorf("moments %v", times)
	}
	l := ledger.New(ledger.Options{})
	got, _, err := Build(&script{list: list}, times, l, func(at uint64) *ledger.Snapshot { return l.Snapshot(at, time.Time{}) })
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{2600, 90} {
		if peak := slices.Max(got.Rows[i].Tensors); peak != want {
			t.Errorf("the tensors of process %d have at most %d bytes, want %d", got.Processes[got.Rows[i].Process].PID, peak, want)
		}
	}
}

// TestASegmentIsNoPeakBeforeItIsUsed: PyTorch takes it, and tells in its next report what for.
func TestASegmentIsNoPeakBeforeItIsUsed(t *testing.T) {
	alloc := func(time, address, size uint64) input {
		return event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: time, Address: address, Size: size, Stack: 1, API: "cudaMalloc"})
	}
	times := momentsOf(&script{list: []input{
		begins(1, 7), told(2, 7, 100, 1000),
		told(40, 7, 700, 1000), told(45, 7, 100, 1000),
		alloc(50, 0x1000, 1000), told(51, 7, 600, 2000),
		alloc(60, 0x9000, 150), event(ledger.Event{Op: ledger.Free, Time: 61, Address: 0x9000}),
	}}, 0, 100, 3)
	// The peak is of tensors, 700. Highest in the step are 600 of them and 150 of another library.
	if want := []uint64{0, 40, 60, 100}; !slices.Equal(times, want) {
		t.Errorf("moments %v, want %v", times, want)
	}
}

// TestOneGPUIsOneRow however its name was learned: first by nothing, then by an ordinal, then by
// NVML.
func TestOneGPUIsOneRow(t *testing.T) {
	alloc := func(time, address uint64, device int32) input {
		return event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Device: device, Time: time, Address: address, Size: 100, Stack: 1, API: "cudaMalloc"})
	}
	devices := input{30, func(b ledger.Books) { b.Tell(ledger.Devices{PID: 7, UUIDs: []string{"GPU-a"}}) }}
	for name, list := range map[string][]input{
		"NVML before the ordinal": {alloc(10, 0x1000, 0), usage(20, 400), devices, usage(40, 400)},
		"the ordinal before NVML": {alloc(10, 0x1000, 0), {15, devices.give}, usage(40, 400)},
		"never an ordinal":        {alloc(10, 0x1000, ledger.UnknownDevice), usage(20, 400), usage(40, 400)},
		"no NVML":                 {alloc(10, 0x1000, 0), devices},
	} {
		l := ledger.New(ledger.Options{})
		got, _, err := Build(&script{list: list}, []uint64{0, 12, 25, 35, 50}, l, func(at uint64) *ledger.Snapshot { return l.Snapshot(at, time.Time{}) })
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Rows) != 1 || !slices.Equal(got.Rows[0].Driver, []uint64{0, 100, 100, 100, 100}) {
			t.Errorf("%s: %s", name, fmt.Sprintf("%+v", got.Rows))
		}
	}
}

// TestUsageIsNeverBelowNothing: an alloc node that ends before its graph was launched gives back
// more than there was.
func TestUsageIsNeverBelowNothing(t *testing.T) {
	l := ledger.New(ledger.Options{})
	list := []input{
		usage(2, 500),
		event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Graph, Time: 10, Address: 0x1000, Size: 10_000, Stack: 1, API: "cuGraphAddMemAllocNode"}),
		usage(20, 500),
		event(ledger.Event{Op: ledger.Free, Time: 30, Address: 0x1000}),
	}
	got, _, err := Build(&script{list: list}, []uint64{0, 25, 35}, l, func(at uint64) *ledger.Snapshot { return l.Snapshot(at, time.Time{}) })
	if err != nil || slices.Max(got.Rows[0].Usage) > 500 {
		t.Errorf("usage %v, %v", got.Rows[0].Usage, err)
	}
}

// TestTheMomentsOfALaterCaptureKnowWhatLivedBefore: its frees, and PyTorch's cache.
func TestTheMomentsOfALaterCaptureKnowWhatLivedBefore(t *testing.T) {
	before := ledger.New(ledger.Options{Begin: 1})
	alloc := func(time, address, size uint64) input {
		return event(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: time, Address: address, Size: size, Stack: 1, API: "cudaMalloc"})
	}
	for _, in := range []input{alloc(2, 0x1000, 1000), alloc(3, 0x9000, 500), begins(4, 7), told(5, 7, 100, 1000)} {
		in.give(before)
	}
	times := momentsOf(&script{list: []input{
		{100, func(b ledger.Books) { before.Opening(b) }},
		event(ledger.Event{Op: ledger.Free, Time: 110, Address: 0x9000}),
		alloc(120, 0x9000, 50), event(ledger.Event{Op: ledger.Free, Time: 130, Address: 0x9000}),
		told(140, 7, 300, 1000), told(150, 7, 100, 1000),
	}}, 105, 200, 3)
	if want := []uint64{105, 140, 200}; !slices.Equal(times, want) {
		t.Errorf("moments %v, want %v", times, want)
	}
}
