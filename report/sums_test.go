// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/internal/sums"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// What processes report about their GPUs may be missing or wrong. Still, no profile has more than
// NVML reports, and all parts of a text add up.
func TestNoReportAddsUpToMoreThanNVMLSays(t *testing.T) {
	for name, make := range map[string]func() *ledger.Snapshot{"plain": reporttest.Snapshot, "kinds": reporttest.KindsSnapshot, "PyTorch": reporttest.TorchSnapshot, "out of memory": reporttest.OOMSnapshot, "held": reporttest.Held} {
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
				sums.Check(t, s)
				if name != "kinds" {
					sums.CheckExact(t, s)
				}
				for k, x := range s.Parts() {
					lines, usage := report.PartLines(&x)
					var sum uint64
					for _, l := range lines {
						sum += l.Bytes
					}
					if sum != usage || usage != s.Balances[k].Usage+uint64(s.Balances[k].Since) {
						t.Errorf("the lines of %+v add up to %d, not to %d", x, sum, usage)
					}
				}
			})
		}
	}
}
