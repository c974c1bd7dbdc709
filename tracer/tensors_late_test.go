// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// contextBytes returns the size of a context: of the fake, or of NVIDIA's driver on a simulated T4.
func contextBytes() uint64 {
	if fakecuda.OnNVIDIA() {
		return 100 << 20
	}
	return 300 << 20
}

// lateSteps are what processes do after the attach, one step after the other. Older segments that
// are given back are seen at the next report, which therefore follows.
var lateSteps = map[string][]string{
	"out of the cache first":  {"alloc k 25M", "alloc l 50M", "free a", "free l", "alloc n 1000", "free b"},
	"a segment first":         {"alloc k 50M", "free k", "alloc k 20M", "free a", "empty_cache; alloc n 1000; alloc o 1000 1", "free k"},
	"a free first":            {"free a", "alloc k 8M", "free k", "free b", "free d"},
	"by several threads":      {"threads 4; random 2 3000 2; end", "free_random 3", "random 5 4000 2", "empty_cache; alloc k 600; alloc l 600 1", "free a"},
	"beside another library":  {"foreign h 64M; alloc k 64M", "foreign i 2M", "free k", "foreign_free h"},
	"on another device first": {"alloc k 25M 1", "foreign h 10M", "free k", "alloc n 10K", "empty_cache; alloc l 10K 1; alloc o 10K"},
	"after a failure":         {"alloc j 1", "oom 900G; alloc k 14G", "free k", "alloc l 15G", "oom 900G; alloc m 1000", "free l"},
}

// TestAttachedInTheMiddleOlderTensorsAreRightToTheByte: older memory has lines of its own, which
// shrink.
func TestAttachedInTheMiddleOlderTensorsAreRightToTheByte(t *testing.T) {
	m := newMachine(t, 2, fmt.Sprintf("FAKECUDA_MEMORY=%d", 256<<30+(machines+1)*(2<<20)))
	programs := map[string]*program{}
	variants := []string{"1.13 " + plain, "2.6 " + expandable, "2.14 " + plain, "2.6 " + plain, "1.13 " + expandable}
	for i, name := range slices.Sorted(maps.Keys(lateSteps)) {
		for k := range 2 {
			version, segments, _ := strings.Cut(variants[(2*i+k)%len(variants)], " ")
			script := []string{"random 9 1500 2", "alloc a 8M", "alloc b 600K", "alloc c 30M", "alloc d 1000", "foreign f 10M", "free c", "mark", "ready", "wait"}
			for _, step := range lateSteps[name] {
				script = append(append(script, strings.Split(step, "; ")...), "totals", "wait")
			}
			more := []string{segments}
			if strings.Contains(name, "library") { // nothing but the choice of its thread tells the device of foreign memory
				more = append(more, "CUDA_VISIBLE_DEVICES=0")
				script[0] = "random 9 1500"
			}
			programs[fmt.Sprintf("PyTorch %s, %s, %s", version, segments, name)] = m.tensors(version, more, script...)
		}
	}
	for _, p := range programs {
		p.ready()
	}
	m.trace(nil)
	for _, what := range slices.Sorted(maps.Keys(programs)) {
		p := programs[what]
		if got := tensorsOf(t, m.snapshot(), p.pid()); len(got) != 0 {
			t.Errorf("%s: before the first report the books have %+v", what, got)
		}
		_, name, _ := strings.Cut(what, "=")
		steps := lateSteps[name[3:]]
		for i, step := range steps {
			p.next()
			totals := p.totals()
			s := m.snapshot()
			at := fmt.Sprintf("%s, step %d: %s", what, i+1, step)
			reported := tensorsOf(t, s, p.pid())
			for device := range totals {
				if _, ok := reported[device]; !ok { // nothing has happened there
					delete(totals, device)
				}
			}
			checkTensors(t, at, s, p.pid(), totals, false)
			checkLateParts(t, at, s, p.pid(), totals)
		}
		p.end()
	}
	if x := m.snapshot().Stats; x.Lost != 0 || x.Reused != 0 { // frees of older segments are unmatched
		t.Errorf("lost %d, reused %d", x.Lost, x.Reused)
	}
}

// checkLateParts wants all that NVML reports explained, and what is not PyTorch's as it was at the
// attach.
func checkLateParts(t *testing.T, what string, s *ledger.Snapshot, pid uint32, totals map[int32]torchTotals) {
	t.Helper()
	_, index := processOf(t, s, pid)
	for i, part := range s.Parts() {
		if part.Process != index {
			continue
		}
		if part.Unexplained+part.Beyond() != 0 {
			t.Errorf("%s: %+v\nof %+v", what, part, s.Balances[i])
		}
		foreign := contextBytes()
		if part.Device == 0 {
			foreign += 10 << 20
		}
		if _, ok := totals[part.Device]; ok && part.Foreign != foreign {
			t.Errorf("%s: on cuda:%d %d bytes were foreign at the attach, want %d: %+v", what, part.Device, part.Foreign, foreign, part)
		}
	}
}

// Before PyTorch 1.10 the allocator reports no totals: older memory is unknown, and not guessed.
func TestAttachedInTheMiddleOfOldPyTorchNothingOlderIsInvented(t *testing.T) {
	m := newMachine(t, 1)
	frees := m.tensors("1.6", nil, "alloc a 8M", "alloc b 600K", "mark", "ready", "wait", "free a", "totals", "wait", "alloc c 30M", "totals", "wait")
	frees.ready()
	m.trace(nil)
	for step := range 2 {
		frees.next()
		totals := frees.totals()
		s := m.snapshot()
		what := fmt.Sprintf("step %d", step+1)
		checkTensors(t, what, s, frees.pid(), totals, true)
		checkParts(t, what, s, frees.pid())
	}
	frees.end()
}

// TestSegmentsAreKnownBeforeTheirStacksAreRead takes a snapshot while the stacks of the latest
// segments are still in their ring: their memory is PyTorch's, not another library's.
func TestSegmentsAreKnownBeforeTheirStacksAreRead(t *testing.T) {
	m := newMachine(t, 1)
	m.slow = 50 * time.Millisecond
	m.keepTorch("1.6")
	m.trace(nil)
	p := m.follow("1.6", []string{plain}, "alloc a 30M", "totals", "sites", "wait")
	totals := p.totals()
	p.sites()
	s := m.Snapshot()
	checkTensors(t, "at once", s, p.pid(), totals, true)
	p.next()
	p.Wait()
}
