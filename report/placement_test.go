// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// checkSums tests that no process has more on GPUs than NVML says; exact that it is as much.
func checkSums(t *testing.T, s *ledger.Snapshot, exact bool) {
	t.Helper()
	shown, usage := make([]int64, len(s.Processes)), make([]int64, len(s.Processes))
	listed := make([]bool, len(s.Processes))
	for _, h := range Holdings(s) {
		if !h.Apart() {
			shown[h.Process] += h.Live
		}
	}
	for _, b := range s.Balances {
		usage[b.Process] += int64(b.Usage) + b.Since
		listed[b.Process] = true
	}
	for i := range s.Processes {
		if listed[i] && (shown[i] > usage[i] || exact && shown[i] != usage[i]) {
			t.Errorf("%s: %d bytes are shown on GPUs, NVML says %d", processName(&s.Processes[i]), shown[i], usage[i])
		}
	}
}

// What processes tell of their GPUs may be missing or wrong: no profile has more than NVML says, and all parts of a text add up.
func TestNoReportAddsUpToMoreThanNVMLSays(t *testing.T) {
	for name, make := range map[string]func() *ledger.Snapshot{"plain": testSnapshot, "kinds": kindsSnapshot, "PyTorch": torchSnapshot, "out of memory": oomSnapshot} {
		for told, change := range map[string]func([]string) []string{
			"right":   func(d []string) []string { return d },
			"nothing": func([]string) []string { return nil },
			"void":    func(d []string) []string { return slices.Repeat([]string{""}, len(d)) },
			"wrong":   func(d []string) []string { return slices.Repeat([]string{"GPU-other"}, max(len(d), 2)) },
			"swapped": func(d []string) []string { d = slices.Clone(d); slices.Reverse(d); return d },
		} {
			t.Run(name+", "+told, func(t *testing.T) {
				s := make()
				for i := range s.Processes {
					s.Processes[i].Devices = change(s.Processes[i].Devices)
				}
				checkSums(t, s, name != "kinds")
				for k, x := range s.Parts() {
					lines, usage := PartLines(&x)
					var sum int64
					for _, l := range lines {
						sum += l.Bytes
					}
					if sum != int64(usage) || usage != s.Balances[k].Usage+uint64(s.Balances[k].Since) {
						t.Errorf("the lines of %+v add up to %d, not to %d", x, sum, usage)
					}
				}
			})
		}
	}
}

func TestReportsSayWhatIsOnNoKnownGPU(t *testing.T) {
	s := kindsSnapshot() // the first process has memory on a GPU that NVML does not list
	s.Processes[0].Ordinals = ledger.OrdinalsDenied
	var text bytes.Buffer
	if err := WriteSummary(&text, s, testStacks(), Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	parts := newLeaksReport(s, testStacks(), Options{}).Parts
	for _, want := range []string{"allocations, GPU unknown", "is unknown; it is subtracted from unexplained", "NVML lists it on other GPUs than its environment names"} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if parts[0].UnplacedBytes == 0 {
		t.Errorf("the JSON has no unplaced bytes: %+v", parts[0])
	}
}
