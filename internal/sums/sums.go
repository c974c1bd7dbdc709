// SPDX-License-Identifier: Apache-2.0

// Package sums tests what holds of every report: no process has more on GPUs than NVML says.
package sums

import (
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Check tests it of the shares that profiles, trees and pages are made of.
func Check(t testing.TB, s *ledger.Snapshot) {
	t.Helper()
	shown, usage := make([]int64, len(s.Processes)), make([]int64, len(s.Processes))
	listed := make([]bool, len(s.Processes))
	for _, h := range report.Holdings(s) {
		if !h.Apart() {
			shown[h.Process] += h.Live
		}
	}
	for _, b := range s.Balances {
		usage[b.Process] += int64(b.Usage) + b.Since // booked after the reading
		listed[b.Process] = true
	}
	for i := range s.Processes {
		if listed[i] && shown[i] > usage[i] {
			t.Errorf("%s: %d bytes are shown on GPUs, NVML says %d", words.Process(&s.Processes[i]), shown[i], usage[i])
		}
	}
}
