// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// asleepScript: 70 MiB in large segments, that sleep, 600 KiB in a small one, that stays; then it
// wakes.
var asleepScript = []string{
	"site 1", "alloc a 30M", "site 2", "alloc b 40M", "alloc s 600K", "foreign f 10M", "totals", "wait",
	"asleep", "totals", "wait",
	"site 3", "alloc t 300K", "totals", "wait",
	"awake", "totals", "wait",
	"free a", "empty_cache", "alloc u 1000", "totals", "wait",
}

// TestTensorsAsleepAreInNoPart: their memory is unmapped under them, the allocator goes on counting
// them, and all of NVML's figure is explained at every step.
func TestTensorsAsleepAreInNoPart(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.trace(nil)
	p := m.follow("2.6", []string{expandable}, asleepScript...)
	for step, want := range []uint64{0, 70 << 20, 70 << 20, 0, 0} {
		totals := p.totals()[0]
		s := m.snapshot()
		x := tensorsOf(t, s, p.pid())[0]
		if x.Asleep != want || x.Allocated != totals.Allocated || x.Reserved != totals.Reserved || x.Segments != totals.Since.Segments || x.OlderCached != 0 || x.OlderAsleep != 0 {
			t.Errorf("step %d: %+v, want %d asleep of\n%+v", step+1, x, want, totals)
		}
		sites := map[string]uint64{}
		for _, y := range s.Sites {
			for _, f := range m.Stack(y.Stack) {
				if y.Kind == ledger.Tensor && strings.HasPrefix(f.Function, "site_") {
					sites[f.Function] += y.Asleep
				}
			}
		}
		if want > 0 && (sites["site_1"] != 30<<20 || sites["site_2"] != 40<<20 || sites["site_3"] != 0) {
			t.Errorf("step %d: of sites %v are asleep", step+1, sites)
		}
		checkParts(t, "step "+string(rune('1'+step)), s, p.pid())
		checkLosses(t, s)
		p.next()
	}
	p.Wait()
}

// TestTensorsOlderThanTheAttachSleep: it is not known which they are, but how much memory was
// unmapped under them. What is free in all older segments is taken to sleep first: so the books may
// have too few tensors asleep by what is cached.
func TestTensorsOlderThanTheAttachSleep(t *testing.T) {
	m := newMachine(t, 1)
	p := m.tensors("2.6", []string{expandable}, "alloc a 30M", "alloc b 40M", "alloc s 600K", "foreign f 10M", "mark", "ready", "wait",
		"asleep", "site 3", "alloc t 300K", "totals", "wait", "awake", "alloc u 300K", "totals", "wait")
	p.ready()
	m.trace(nil)
	for step, want := range []uint64{70 << 20, 0} {
		p.next()
		totals := p.totals()[0]
		s := m.snapshot()
		x := tensorsOf(t, s, p.pid())[0]
		if cached := totals.Reserved - totals.Allocated; x.OlderAsleep > want || x.OlderAsleep+cached < want || x.Asleep != 0 || x.Older != totals.Allocated-totals.Since.Allocated {
			t.Errorf("step %d: %+v, want %d asleep of what is older", step+1, x, want)
		}
		checkParts(t, "step "+string(rune('1'+step)), s, p.pid())
	}
	p.end()
}
