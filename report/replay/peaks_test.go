// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

type noStacks struct{}

func (noStacks) Stack(uint64) []callstack.Frame { return nil }

// A capture has the holders that the books of a peak lack: they show what an ended process used.
func TestPeaksHaveHolders(t *testing.T) {
	const second, mib, begin, address = uint64(1e9), uint64(1 << 20), uint64(1e12), uint64(1 << 40)
	file, err := os.Create(filepath.Join(t.TempDir(), "run.vram"))
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Uint64
	now.Store(begin)
	w, err := capture.NewWriter(file, capture.Options{Clock: now.Load, Wall: time.Unix(1e9, 0)})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(noStacks{})
	w.Tell(ledger.Begin{Time: begin})
	w.Tell(ledger.Process{PID: 7, Comm: "python3", Begin: begin})
	event := func(op ledger.Op, at uint64) {
		now.Store(begin + at*second)
		w.Apply(&ledger.Event{Op: op, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 7, Address: address, Size: 64 * mib, Time: begin + at*second, Stack: 1, API: "torch"})
	}
	totals := func(at, bytes uint64) {
		classes := make([]ledger.ClassTotals, ledger.SizeClasses)
		c := &classes[ledger.SizeClass(64*mib)]
		c.Allocs, c.AllocBytes = 1, 64*mib
		if bytes == 0 {
			c.Frees, c.FreeBytes = 1, 64*mib
		}
		w.Tell(ledger.TensorReading{Time: begin + at*second, Totals: []ledger.TensorTotals{{PID: 7, Allocated: bytes, Live: bytes, Reserved: 64 * mib, Reported: begin + at*second, Classes: classes}}})
	}
	event(ledger.Alloc, 1)
	totals(1, 64*mib)
	now.Store(begin + 2*second)
	w.Tell(ledger.Walk{PID: 7, Time: begin + 2*second, Storages: []ledger.Storage{{Address: address, Bytes: 64 * mib, Block: 64 * mib}},
		Holders: []ledger.Holder{{Path: "model.weight", Frames: []string{"model", "weight"}, Found: true, Parts: modelpart.Bytes{modelpart.Weight: 64 * mib}}}})
	totals(2, 64*mib)
	event(ledger.Free, 3)
	totals(3, 0)
	event(ledger.Exit, 4)
	if err := w.End(&ledger.Snapshot{End: begin + 5*second}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.Snapshot(r.End())
	if err != nil {
		t.Fatal(err)
	}
	books, err := Peaks(r, s)
	if err != nil || len(books) != 1 {
		t.Fatalf("%v: %d books of %d peaks", err, len(books), len(s.Peaks))
	}
	with, without := purpose.AtPeaks(s, r, books, 9), purpose.AtPeaks(s, r, nil, 9)
	if len(with) != 1 || len(with[0].Rows) != 1 || with[0].Rows[0].Kind != purpose.Weights || with[0].Bytes != int64(64*mib) || with[0].Time != begin+second {
		t.Errorf("with holders: %+v", with)
	}
	if len(without) != 1 || without[0].Rows[0].Kind != purpose.Tensors || without[0].Bytes != int64(64*mib) {
		t.Errorf("without: %+v", without)
	}
}
