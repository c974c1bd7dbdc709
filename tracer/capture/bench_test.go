// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// workload generates events like those of a training: blocks of some sizes, reused again and again
// by a few hundred sites in two threads, and occasionally a new segment.
type workload struct {
	rng  *rand.Rand
	now  uint64
	live []ledger.Event
	free [64][]uint64 // addresses to reuse, by size
	next uint64
}

func newWorkload() *workload {
	return &workload{rng: rand.New(rand.NewPCG(1, 2)), now: sessionBegin, next: 0x7f3a_0000_0000}
}

func (w *workload) event(e *ledger.Event) {
	r := w.rng
	w.now += 300 + uint64(r.ExpFloat64()*4700)
	if len(w.live) > 2000+int(r.Uint64N(200)) {
		i := r.IntN(len(w.live))
		*e = w.live[i]
		w.live[i] = w.live[len(w.live)-1]
		w.live = w.live[:len(w.live)-1]
		class := e.Size % 61
		w.free[class] = append(w.free[class], e.Address)
		e.Op, e.Time, e.Size, e.Stack = ledger.Free, w.now, 0, 0
		return
	}
	site := uint64(r.ExpFloat64() * 60)
	size := (1 + site*site%977) << 9
	class := size % 61
	address := w.next
	if n := len(w.free[class]); n > 0 {
		address = w.free[class][n-1]
		w.free[class] = w.free[class][:n-1]
	} else {
		w.next += size
	}
	*e = ledger.Event{
		Op: ledger.Alloc, Kind: ledger.Tensor, Space: ledger.Blocks, PID: 4242, TID: 4242 + uint32(site%2), Time: w.now,
		Address: address, Size: size, Stack: (site + 1) * 0x9e3779b97f4a7c15, API: "torch",
	}
	w.live = append(w.live, *e)
}

func generate(n int) []ledger.Event {
	w := newWorkload()
	events := make([]ledger.Event, n)
	for i := range events {
		w.event(&events[i])
	}
	return events
}

// written writes n events and returns the file.
func written(tb testing.TB, events []ledger.Event) *memory {
	tb.Helper()
	file := &memory{}
	w, err := NewWriter(file, Options{Interval: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	w.Tell(ledger.Begin{Time: sessionBegin})
	for i := range events {
		w.Apply(&events[i])
		for i%batchEvents == 0 && len(w.queue) > maxQueue/2 { // no program is that fast
			time.Sleep(time.Millisecond)
		}
	}
	if err := w.End(nil); err != nil {
		tb.Fatal(err)
	}
	return file
}

func BenchmarkWrite(b *testing.B) {
	events := generate(1 << 20)
	b.ReportAllocs()
	b.ResetTimer()
	var file *memory
	for range b.N {
		file = written(b, events)
	}
	b.ReportMetric(float64(len(events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
	b.ReportMetric(float64(len(file.b))/float64(len(events)), "bytes/event")
}

// nothing accepts all inputs and ignores them.
type nothing struct {
	ledger.Books
	events int
}

func (n *nothing) Apply(*ledger.Event) { n.events++ }
func (n *nothing) Tell(ledger.Input)   {}

func BenchmarkRead(b *testing.B) {
	events := generate(1 << 20)
	r := written(b, events).read(b)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		n := &nothing{}
		if err := r.Play(math.MaxUint64, n); err != nil || n.events != len(events) {
			b.Fatal(n.events, err)
		}
	}
	b.ReportMetric(float64(len(events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

func BenchmarkReplay(b *testing.B) {
	events := generate(1 << 20)
	r := written(b, events).read(b)
	b.ResetTimer()
	for range b.N {
		if _, err := r.Snapshot(math.MaxUint64); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(events))*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
