// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func heldCollector() *Collector {
	c := NewCollector(ledger.New(ledger.Options{Begin: 1000 * second}), CollectorOptions{PID: 4242})
	reporttest.PlayHeld(c)
	return c
}

// TestBlocksHaveTheirHolders: by address, so exactly; blocks since the walk have none.
func TestBlocksHaveTheirHolders(t *testing.T) {
	c := heldCollector()
	s := c.Snapshot(1060*second, wall)
	var b bytes.Buffer
	if err := Torch(&b, c, s, reporttest.HeldStacks()); err != nil {
		t.Fatal(err)
	}
	v := view(t, b.Bytes())
	sums, total := map[string]int64{}, int64(0)
	for _, g := range v.segments {
		for _, x := range g.blocks {
			if x.active {
				sums[strings.Join(x.frames, ";")] += x.size
			}
			total += x.size
		}
	}
	if want := int64(s.Parts()[0].Usage); total != want {
		t.Errorf("blocks have %d bytes, NVML %d", total, want)
	}
	kept := map[string]int64{}
	for stack, n := range sums {
		leaf, _, _ := strings.Cut(stack, ";")
		kept[leaf] += n
	}
	const weight = "weight;layers.*;model;__main__;[before attach: pytorch allocated]"
	if n := kept[`[kept by local "trainer".history[*] of main() (train.py:7)]`]; n != 560*8<<20 {
		t.Errorf("the list keeps %d bytes", n)
	}
	if n := kept["[kept by metrics['recent'][*]]"]; n != 20*8<<20 {
		t.Errorf("the deque keeps %d bytes", n)
	}
	if kept["[kept by pool.buffer]"] != 1<<30 || kept["c10::reportMemoryUsageToProfiler(void*, long, unsigned long, unsigned long, c10::Device)"] != 19*8<<20 {
		t.Errorf("leaves are %v", kept)
	}
	if got := sums[weight] >> 20; got != 14*1024 {
		t.Errorf("the weights have %d MiB: %v", got, sums)
	}
	if err := v.replay(); err != nil {
		t.Error(err)
	}
}

func TestFoldedStacksHaveThePathsOfOlderMemory(t *testing.T) {
	s, st := reporttest.Held(), reporttest.HeldStacks()
	var with, without bytes.Buffer
	if err := Folded(&with, s, st, FoldedOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Walks = nil
	if err := Folded(&without, s, st, FoldedOptions{}); err != nil {
		t.Fatal(err)
	}
	if a, b := readFolded(t, with.String()), readFolded(t, without.String()); a != b {
		t.Errorf("with holders the lines have %d bytes, without %d", a, b)
	}
	if want := "\n[before attach: pytorch allocated];__main__;optimizer;state[*];['exp_avg'] "; !strings.Contains(with.String(), want) {
		t.Errorf("no line %q in\n%s", want, with.String())
	}
	for _, sample := range []Sample{Allocated, Host} {
		with.Reset()
		if err := Folded(&with, reporttest.Held(), st, FoldedOptions{Sample: sample}); err != nil || strings.Contains(with.String(), "__main__") {
			t.Errorf("sample %d has holders: %v", sample, err)
		}
	}
}

func TestChromeShowsWhoKeepsMemoryAtEachWalk(t *testing.T) {
	s := reporttest.Held()
	var b bytes.Buffer
	line := &timeline.Timeline{Processes: s.Processes}
	line.Times = []uint64{s.Begin}
	if err := Chrome(&b, line, s, reporttest.HeldStacks()); err != nil {
		t.Fatal(err)
	}
	list := checkChrome(t, b.Bytes())
	const history = `local "trainer".history[*] of main() (train.py:7)`
	for us, want := range map[float64]int64{1e6: 192 * 8 << 20, 58e6: 752 * 8 << 20} {
		if got := at(list, 4242, "who keeps cuda:0", us)[history]; got != want {
			t.Errorf("at %f the list keeps %d, want %d", us, got, want)
		}
	}
	for i := range s.Walks { // hostile names, and more than are shown
		for k := range 20 {
			s.Walks[i].Held = append(s.Walks[i].Held, ledger.Held{Holder: ledger.Holder{Path: "\x1b" + strings.Repeat("x", k)}, Bytes: 1})
		}
	}
	b.Reset()
	if err := Chrome(&b, line, s, reporttest.HeldStacks()); err != nil {
		t.Fatal(err)
	}
	for _, e := range checkChrome(t, b.Bytes()) {
		var n uint64
		if e.Phase == "C" && *e.Name == "who keeps cuda:0" && *e.PID == 4242 && (len(e.Args) != chromeHolders+1 || json.Unmarshal(e.Args["other holders"], &n) != nil || n != 20) {
			t.Errorf("a counter has %v", e.Args)
		}
	}
}
