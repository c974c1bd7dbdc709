// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// The ledger decides which memory lives, and where. Each case has the segments at its end.
func TestTorchDrawsWhatTheLedgerHas(t *testing.T) {
	const a, b = 0x7f_0000_0000, 0x7e_0000_0000
	alloc := func(time, address, context uint64, device int32) ledger.Event {
		return ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Time: time, Address: address, Size: mib, Context: context, Device: device, API: "cuMemAlloc_v2"}
	}
	with := func(e ledger.Event, change func(e *ledger.Event)) ledger.Event {
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		events []ledger.Event
		want   []string // device and size of each segment
	}{
		"a pool of page-locked memory is on no GPU": {[]ledger.Event{
			alloc(1, a, 0, 0),
			{Op: ledger.PoolCreate, Kind: ledger.Pinned, Time: 2, Handle: 77},
			with(alloc(3, b, 0, 0), func(e *ledger.Event) { e.Kind, e.Handle = ledger.Async, 77 }),
		}, []string{"0: 1"}},
		"a green context ends with the primary one of its device": {[]ledger.Event{
			{Op: ledger.ContextRetain, Time: 1, Device: 0, Context: 5},
			{Op: ledger.ObjectCreate, Kind: ledger.GreenContext, Time: 2, Address: 9, Device: 0},
			{Op: ledger.GreenCreate, Kind: ledger.GreenContext, Time: 2, Address: 9, Device: 0, Context: 5},
			{Op: ledger.ContextDerive, Time: 3, Handle: 9, Context: 6},
			alloc(4, a, 6, 0), alloc(4, b, 0, 1),
			{Op: ledger.ContextReset, Time: 5, Device: 0},
		}, []string{"1: 1"}},
		"a reset without a device is of the only one that is used": {[]ledger.Event{
			alloc(1, a, 0, 0),
			{Op: ledger.ContextReset, Time: 2, Device: ledger.UnknownDevice},
			with(alloc(3, b, 0, 0), func(e *ledger.Event) { e.Size = 2 * mib }),
		}, []string{"0: 2"}},
		"a context tells the device of what is allocated in it": {[]ledger.Event{
			{Op: ledger.ContextRetain, Time: 1, Device: 2, Context: 5},
			with(alloc(2, a, 5, ledger.UnknownDevice), func(e *ledger.Event) { e.Kind, e.Space = ledger.Array, ledger.Arrays }),
			alloc(3, b, 0, 1),
		}, []string{"1: 1", "2: 1"}},
		"memory of another process is where allocated memory was": {[]ledger.Event{
			alloc(1, a, 0, 0), alloc(1, b, 0, 0),
			with(alloc(2, a, 0, 0), func(e *ledger.Event) { e.Kind = ledger.Imported }),
		}, []string{"0: 1"}},
		"a late free of a program that ended is not of the next one": {[]ledger.Event{
			alloc(1, a, 0, 0),
			{Op: ledger.Exec, Time: 3},
			alloc(4, a, 0, 0),
			{Op: ledger.Free, Time: 2, Address: a},
		}, []string{"0: 1"}},
	} {
		collector := NewCollector(ledger.New(ledger.Options{Begin: begin}), CollectorOptions{})
		for _, e := range c.events {
			e.PID, e.TID, e.Time = 7, 7, begin+e.Time*second
			collector.Apply(&e)
		}
		var file bytes.Buffer
		if err := Torch(&file, collector, snapshot(collector, begin+60*second), testStacks()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v := view(t, file.Bytes())
		if err := v.replay(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, s := range v.segments {
			got = append(got, fmt.Sprintf("%d: %d", s.device, s.size/int64(mib)))
		}
		if slices.Sort(got); !slices.Equal(got, c.want) {
			t.Errorf("%s: segments %q, want %q", name, got, c.want)
		}
	}
}

// Allocations that the ledger has no room for are not drawn, but counted.
func TestTorchCountsWhatTheLedgerHasNoRoomFor(t *testing.T) {
	c := NewCollector(ledger.New(ledger.Options{Begin: begin, MaxLive: 64}), CollectorOptions{})
	for i := range uint64(100) {
		c.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 7, Time: begin + i, Address: (1 + i) << 32, Size: mib, Stack: segmentStack, API: "cudaMalloc"})
	}
	s := snapshot(c, begin+second)
	var file bytes.Buffer
	if err := Torch(&file, c, s, testStacks()); err != nil {
		t.Fatal(err)
	}
	v := view(t, file.Bytes())
	if n := s.Processes[0].Totals[0].LiveObjects; uint64(len(v.segments)) != n || v.about["events_left_out"] != int64(100-n) {
		t.Errorf("%d segments and %v left out, the ledger has %d", len(v.segments), v.about["events_left_out"], n)
	}
}
