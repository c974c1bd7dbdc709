// SPDX-License-Identifier: Apache-2.0

// Package sums tests what must be true of every report: no process has more memory on GPUs than
// NVML reports for it, and no GPU less than its processes.
//
// It stands outside of report/reporttest, which the tests inside of package report use and which
// therefore must not import report.
package sums

import (
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Check tests that the holdings of each process on GPUs, of which profiles, trees and pages are
// made, add up to at most what NVML reports.
func Check(t testing.TB, s *ledger.Snapshot) {
	t.Helper()
	check(t, s, func(shown, usage int64) bool { return shown <= usage })
}

// CheckExact tests that they add up to exactly what NVML reports.
func CheckExact(t testing.TB, s *ledger.Snapshot) {
	t.Helper()
	check(t, s, func(shown, usage int64) bool { return shown == usage })
}

// checkGPUs tests that no GPU uses less than its running processes do, unless NVML's own figures
// differ, as they can where memory comes and goes between two of its calls.
func checkGPUs(t testing.TB, s *ledger.Snapshot) {
	t.Helper()
	for i := range s.GPUs {
		g := &s.GPUs[i]
		var read, now int64
		for _, b := range s.Balances {
			if b.UUID == g.UUID && s.Processes[b.Process].End == 0 {
				read += int64(b.Usage)
				now += int64(b.Usage) + b.Since
			}
		}
		if used := int64(g.Now()); used < now && used < int64(g.Total) && int64(g.Used) >= read {
			t.Errorf("GPU %s: %d bytes used, its processes use %d", g.UUID, used, now)
		}
	}
}

func check(t testing.TB, s *ledger.Snapshot, right func(shown, usage int64) bool) {
	t.Helper()
	checkGPUs(t, s)
	shown, usage := make([]int64, len(s.Processes)), make([]int64, len(s.Processes))
	listed := make([]bool, len(s.Processes))
	for _, h := range report.Holdings(s) {
		if h.Live < 0 {
			t.Errorf("%s: %d bytes of %s", format.Process(&s.Processes[h.Process]), h.Live, h.Plane)
		}
		if !h.Apart() {
			shown[h.Process] += h.Live
		}
	}
	for _, b := range s.Balances {
		usage[b.Process] += int64(b.Usage) + b.Since // what was booked after the reading
		listed[b.Process] = true
	}
	for i := range s.Processes {
		if listed[i] && !right(shown[i], usage[i]) {
			t.Errorf("%s: %d bytes are shown on GPUs, NVML reports %d", format.Process(&s.Processes[i]), shown[i], usage[i])
		}
	}
}
