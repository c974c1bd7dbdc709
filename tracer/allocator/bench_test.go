// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// cpu returns the CPU time that this process has used.
func cpu(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRealPyTorch walks blocks whose addresses have no order, as those of a program that runs
// for long.
func BenchmarkRealPyTorch(b *testing.B) {
	for _, count := range []int{1_000, 20_000, 200_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			atPoints(b, nil, "many.py", []string{fmt.Sprint(count)}, func(p *peek.Process) {
				a := New(p, nil)
				s, err := a.Walk(1)
				if err != nil {
					b.Fatal(err)
				}
				benchmarkWalks(b, a, len(s.Blocks))
			})
		})
	}
}

// benchmarkWalks measures walks of an allocator at rest, and its counters.
func benchmarkWalks(b *testing.B, a *Allocator, blocks int) {
	var cost Cost
	begin := cpu(b)
	for b.Loop() {
		s, err := a.Walk(1)
		if err != nil || len(s.Blocks) != blocks || !s.Exact() {
			b.Fatalf("%d blocks, %v", len(s.Blocks), err)
		}
		cost = s.Cost
	}
	used := float64(cpu(b)-begin) / float64(b.N)
	b.ReportMetric(used/1e6, "cpu-ms/op")
	b.ReportMetric(used/float64(blocks)/1e3, "cpu-us/block")
	b.ReportMetric(float64(blocks), "blocks")
	b.ReportMetric(float64(cost.Calls), "calls/op")
	b.ReportMetric(float64(cost.Bytes)/(1<<20), "MiB/op")
	const polls = 100
	begin = cpu(b)
	for range polls {
		if _, err := a.Counters(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cpu(b)-begin)/polls/1e3, "cpu-us/counters")
}

// BenchmarkWalk reads PyTorch 2.6's structures in another process, with addresses and a layout that
// are kept. Blocks lie in the order of their addresses there: see BenchmarkRealPyTorch.
func BenchmarkWalk(b *testing.B) {
	for _, segments := range []int{32, 650, 6_500} {
		p, told := startShape(b, 260, segments)
		a := New(p, nil)
		if _, err := a.Walk(1); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint(len(told)), func(b *testing.B) { benchmarkWalks(b, a, len(told)) })
	}
}

// BenchmarkFirstWalk reads a process of which nothing is known: it finds the library, the objects
// and the layout.
func BenchmarkFirstWalk(b *testing.B) {
	for _, segments := range []int{32, 650, 6_500} {
		p, told := startShape(b, 260, segments)
		b.Run(fmt.Sprint(len(told)), func(b *testing.B) {
			begin := cpu(b)
			for range b.N {
				if _, _, err := readOnce(p, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpu(b)-begin)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}
