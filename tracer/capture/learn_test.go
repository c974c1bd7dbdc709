// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Inputs that later reveal the GPU of memory must have the same effect in a replay as in the
// session.
func TestReplayPlacesMemoryPlacedLater(t *testing.T) {
	var file memory
	c := &clock{now: sessionBegin}
	w, err := NewWriter(&file, Options{Host: "host", Clock: c.read, Wall: time.Unix(1700000000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(fakeStacks{&atomic.Bool{}})
	l := ledger.New(ledger.Options{Begin: c.now, Host: "host"})
	books := both{l, w}
	apply := func(e ledger.Event) {
		e.PID, e.TID, e.Time = 7, 8, c.now
		books.Apply(&e)
		c.set(c.now + 1e9)
	}
	alloc := func(address, size uint64) {
		apply(ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, Device: ledger.UnknownDevice, Address: address, Size: size, API: "cudaMalloc"})
	}
	usage := func(a, b uint64) {
		books.Tell(ledger.UsageReading{Time: c.now, Usages: []ledger.Usage{{PID: 7, UUID: "GPU-a", Bytes: a}, {PID: 7, UUID: "GPU-b", Bytes: b}}})
	}
	books.Tell(ledger.Begin{Time: c.now})
	books.Tell(ledger.GPUs{{UUID: "GPU-a", Name: "A"}, {Index: 1, UUID: "GPU-b", Name: "A"}})
	books.Tell(ledger.Process{PID: 7, Begin: c.now})
	books.Tell(ledger.Devices{PID: 7, UUIDs: []string{"GPU-a", "GPU-b"}})
	usage(300<<20, 300<<20)
	since := c.now
	alloc(0x1000, 5<<20)
	apply(ledger.Event{Op: ledger.Learn, Device: 1, Address: since})
	alloc(0x2000, 70<<20)
	usage(370<<20, 305<<20) // the growth of the first GPU
	want := l.Snapshot(c.now, time.Unix(1700000099, 0).UTC())
	if err := w.End(want); err != nil {
		t.Fatal(err)
	}
	got, err := file.read(t).Snapshot(math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("replayed books differ:\n%+v\nwant\n%+v", got, want)
	}
	for i, bytes := range []uint64{70 << 20, 5 << 20} {
		if x := got.Parts()[i]; x.Driver != bytes || x.Unexplained != 0 || x.Unplaced != 0 {
			t.Errorf("%+v, want %d bytes of the driver", x, bytes)
		}
	}
	if got.Processes[0].Deduced != 70<<20 {
		t.Errorf("%d bytes are deduced", got.Processes[0].Deduced)
	}
}
