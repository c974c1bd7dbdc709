// SPDX-License-Identifier: Apache-2.0

package text

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// timed writes inputs at their times.
type timed struct {
	*capture.Writer
	now *atomic.Uint64
}

func (b timed) Apply(e *ledger.Event) {
	b.now.Store(e.Time)
	b.Writer.Apply(e)
}

func (b timed) Tell(in ledger.Input) {
	if reading, ok := in.(ledger.TensorReading); ok {
		b.now.Store(reading.Time)
	}
	b.Writer.Tell(in)
}

// stuckCapture is a capture of reporttest.Stuck.
func stuckCapture(t *testing.T, live *ledger.Snapshot) *capture.Reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stuck.vram")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	now := new(atomic.Uint64)
	now.Store(live.Begin)
	w, err := capture.NewWriter(file, capture.Options{Host: live.Host, Clock: now.Load, Wall: live.Wall})
	if err != nil {
		t.Fatal(err)
	}
	w.SetStacks(reporttest.StuckStacks())
	w.Tell(ledger.Begin{Time: live.Begin})
	reporttest.PlayStuck(timed{w, now})
	if err := w.End(live); err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestWhatKeepsTheCacheIsKnownAtAnyMoment: at the end as in the session, and before blocks were
// listed as far as the sample shows.
func TestWhatKeepsTheCacheIsKnownAtAnyMoment(t *testing.T) {
	live := reporttest.Stuck()
	r := stuckCapture(t, live)
	at := func(time uint64) *ledger.Snapshot {
		s, err := r.Snapshot(time)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range s.Stuck {
			if x.Free+x.Idle > s.Tensors[0].Cached {
				t.Errorf("at %d: %d bytes are stuck and %d idle of %d cached", time, x.Free, x.Idle, s.Tensors[0].Cached)
			}
		}
		return s
	}
	if got, want := cacheView(t, at(live.End), report.Options{}, 80), cacheView(t, live, report.Options{}, 80); got != want {
		t.Errorf("the capture shows:\n%s\nthe session:\n%s", got, want)
	}
	some := 0
	for time := live.Begin; time < live.End; time += (live.End - live.Begin) / 100 {
		if s := at(time); len(s.Stuck) > 0 && s.Stuck[0].Free > 0 {
			some++
			if text := cacheView(t, s, report.Options{}, 80); !strings.Contains(text, "! tensors that were not sampled were not listed before") {
				t.Errorf("nothing is said of small tensors:\n%s", text)
			}
		}
	}
	if some < 10 {
		t.Errorf("something is stuck at %d moments", some)
	}
}
