// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestACaptureOfManyForgottenProcessesIsRead: limits are of what is in the books at once. The file
// is so small that it could not have as many processes that stay.
func TestACaptureOfManyForgottenProcessesIsRead(t *testing.T) {
	const processes = 20_000
	var file memory
	c := &clock{now: sessionBegin}
	w, err := NewWriter(&file, Options{Host: "host", Tool: "vramprof test", Clock: c.read, Wall: time.Unix(1700000000, 5)})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{Begin: c.now, Host: "host"})
	books := both{l, w}
	books.Tell(ledger.Begin{Time: c.now})
	for i := range uint64(processes) {
		pid := uint32(1 + i%30_000)
		c.set(sessionBegin + i*100e6)
		for _, e := range []ledger.Event{{Op: ledger.Alloc, Kind: ledger.Device, Address: 1 << 20, Size: 1 << 20, API: "cudaMalloc"}, {Op: ledger.Exit}} {
			e.PID, e.TID, e.Time = pid, pid, c.read()
			books.Apply(&e)
		}
		if i%100 == 0 {
			books.Tell(ledger.Forget{Before: c.read() - 10e9})
		}
	}
	want := l.Snapshot(c.read(), time.Unix(1700000099, 7).UTC())
	l.AddStuck(want)
	l.AddPeaks(want)
	if err := w.End(want); err != nil {
		t.Fatal(err)
	}
	if n := len(file.bytes()); processLimit.of(int64(n)) >= processes {
		t.Fatalf("a file of %d bytes may have %d processes anyhow", n, processLimit.of(int64(n)))
	}
	got, err := file.read(t).Snapshot(math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(got.Processes); n == 0 || n > 300 || uint64(n)+got.Forgotten.Processes != processes {
		t.Errorf("%d processes and %d that were forgotten", n, got.Forgotten.Processes)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
