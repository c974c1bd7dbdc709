// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// BenchmarkApplyAfterAMonth is BenchmarkApply in a session of a month. It reports the memory that
// the books take then.
func BenchmarkApplyAfterAMonth(b *testing.B) {
	for _, live := range []uint64{1e3, 1e6} {
		b.Run(fmt.Sprintf("live=%.0e", float64(live)), func(b *testing.B) {
			l := New(Options{})
			sites := min(live, 10000)
			fill(l, live, sites, Device, Addresses)
			rng := rand.New(rand.NewPCG(1, 2))
			now := live * 1000
			step := func(pause uint64) {
				now += pause
				i := rng.Uint64N(live)
				e := Event{Op: Free, Kind: Device, PID: 7, TID: 7, Time: now, Address: 0x7f0000000000 + i*512}
				l.Apply(&e)
				e.Op, e.Size, e.Stack, e.Device, e.API = Alloc, 512, 1+i%sites, int32(i%8), "cudaMalloc"
				l.Apply(&e)
			}
			for range 1_000_000 {
				step(2_592e9) // 30 days in all
			}
			b.ReportAllocs()
			for b.Loop() {
				step(1000)
			}
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapInuse)/1e6, "MB-heap")
			runtime.KeepAlive(l)
		})
	}
}
