// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// slowFile is a disk that writes nothing until it is released.
type slowFile struct {
	memory
	released chan struct{}
	head     bool
}

func (f *slowFile) WriteAt(b []byte, at int64) (int, error) {
	if f.head { // NewWriter writes the head itself
		<-f.released
	}
	f.head = true
	return f.memory.WriteAt(b, at)
}

// TestOpeningIsNeverDropped, however slow the disk is: only what comes later may be.
func TestOpeningIsNeverDropped(t *testing.T) {
	f := &slowFile{released: make(chan struct{})}
	w, err := NewWriter(f, Options{Session: "a", Boot: "b", Part: 3, batch: 4})
	if err != nil {
		t.Fatal(err)
	}
	alloc := func(n uint64) {
		w.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: 42, TID: 42, Time: n, Address: n << 12, Size: 1, API: "cudaMalloc"})
	}
	n := uint64(0)
	w.Open(func(to ledger.Books) {
		for range 4 * 3 * maxQueue {
			n++
			alloc(n)
		}
	})
	for range 4 * 3 * maxQueue {
		n++
		alloc(n)
	}
	if w.Stored().Opened {
		t.Error("the opening is in the file that was not written")
	}
	close(f.released)
	if err := w.End(nil); err == nil {
		t.Error("nothing that came later was dropped")
	}
	r := f.read(t)
	session, part := r.Session()
	if r.Opened() == 0 || !w.Stored().Opened || session != "a" || part != 3 || r.Boot() != "b" {
		t.Errorf("opened at %d, session %q, part %d, boot %q", r.Opened(), session, part, r.Boot())
	}
	if got, least := r.Events(), uint64(4*4*maxQueue)-4; got < least || got >= n {
		t.Errorf("%d events of %d, want at least %d", got, n, least)
	}
}
