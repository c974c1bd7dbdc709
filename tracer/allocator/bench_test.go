// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the CPU time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkWalk reads PyTorch 2.6's structures in another process, with addresses and a layout that are kept. Blocks
// and segments lie in the order of their addresses there: see TestWalksOfRealPyTorchCostLittle for others.
func BenchmarkWalk(b *testing.B) {
	for _, segments := range []int{32, 650, 6_500} {
		p, told := startShape(b, 260, segments)
		a := New(p, nil)
		if _, err := a.Walk(1); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("blocks=%d", len(told)), func(b *testing.B) {
			begin := cpu(b)
			var cost Cost
			for b.Loop() {
				s, err := a.Walk(1)
				if err != nil || len(s.Blocks) != len(told) || !s.Exact() {
					b.Fatalf("%d blocks, %v", len(s.Blocks), err)
				}
				cost = s.Cost
			}
			used := float64(cpu(b)-begin) / float64(b.N)
			b.ReportMetric(used/1e6, "cpu-ms/op")
			b.ReportMetric(used/float64(len(told))/1e3, "cpu-us/block")
			b.ReportMetric(float64(cost.Calls), "calls/op")
			b.ReportMetric(float64(cost.Bytes)/(1<<20), "MiB/op")
		})
		b.Run(fmt.Sprintf("counters/blocks=%d", len(told)), func(b *testing.B) {
			begin := cpu(b)
			for b.Loop() {
				if _, err := a.Counters(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu(b)-begin)/float64(b.N)/1e3, "cpu-us/op")
		})
	}
}
