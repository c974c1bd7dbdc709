// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// checkSums tests that no process has more on GPUs than NVML says; exact that it is as much.
func checkSums(t *testing.T, s *ledger.Snapshot, exact bool) {
	t.Helper()
	shown, usage := make([]int64, len(s.Processes)), make([]int64, len(s.Processes))
	listed := make([]bool, len(s.Processes))
	for _, h := range report.Holdings(s) {
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
			t.Errorf("%s: %d bytes are shown on GPUs, NVML says %d", words.Process(&s.Processes[i]), shown[i], usage[i])
		}
	}
}

// What processes tell of their GPUs may be missing or wrong: no profile has more than NVML says, and all parts of a text add up.
func TestNoReportAddsUpToMoreThanNVMLSays(t *testing.T) {
	for name, make := range map[string]func() *ledger.Snapshot{"plain": reporttest.Snapshot, "kinds": reporttest.KindsSnapshot, "PyTorch": reporttest.TorchSnapshot, "out of memory": reporttest.OOMSnapshot} {
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
					lines, usage := report.PartLines(&x)
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
