// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"testing"
)

// BenchmarkRead reads PyTorch 2.6's structures in another process, with a layout that is kept.
func BenchmarkRead(b *testing.B) {
	for _, segments := range []int{100, 2_000, 20_000} {
		p, told := startShape(b, 260, segments)
		b.Run(fmt.Sprintf("blocks=%d", len(told)), func(b *testing.B) {
			_, layout, err := Read(p, nil, 1)
			if err != nil {
				b.Fatal(err)
			}
			var cost Cost
			for b.Loop() {
				s, _, err := Read(p, layout, 1)
				if err != nil || len(s.Blocks) != len(told) {
					b.Fatalf("%d blocks, %v", len(s.Blocks), err)
				}
				cost = s.Cost
			}
			b.ReportMetric(float64(cost.Calls), "calls/op")
			b.ReportMetric(float64(cost.Bytes)/(1<<20), "MiB/op")
		})
	}
}
