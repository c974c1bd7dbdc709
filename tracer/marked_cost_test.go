// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/numa"
)

// TestCostOfReadingMarkedPages measures what calls without marked pages pay on a host with several
// NUMA nodes: VRAMPROF_ROUNDS rounds with and without, in turn, and the differences of each two. It
// is for people; the figures are in scripts/bench/results/README.md.
func TestCostOfReadingMarkedPages(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("VRAMPROF_ROUNDS"))
	if err != nil {
		t.Skip("set VRAMPROF_ROUNDS to measure")
	}
	if _, err := numa.Prepare(os.DirFS("/"), runtime.GOARCH); err != nil {
		t.Skip(err)
	}
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	for _, c := range []struct{ name, depth string }{
		{"remembered, 30 frames", "30"},
		{"walked, 200 frames", "200"}, // more than MAX_CHECKS: not remembered
	} {
		var ns [2][]float64
		for round := range rounds {
			for i := range 2 {
				read := (i+round)%2 == 1
				t.Run(fmt.Sprintf("%s/%d/read=%v", c.name, round, read), func(t *testing.T) {
					n := &ns[btoi(read)]
					*n = append(*n, costOfACall(t, read, c.depth))
				})
			}
		}
		var difference []float64
		for i := range ns[0] {
			difference = append(difference, ns[1][i]-ns[0][i])
		}
		t.Logf("%s: %s ns without, %s with; differences %s", c.name, quartiles(ns[0]), quartiles(ns[1]), quartiles(difference))
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func quartiles(n []float64) string {
	n = slices.Clone(n)
	slices.Sort(n)
	return fmt.Sprintf("%.0f (%.0f to %.0f, least %.0f)", n[len(n)/2], n[len(n)/4], n[len(n)*3/4], n[0])
}

// costOfACall returns the ns of one run of alloc_enter, which walks the stack: the lower quartile
// of intervals of a millisecond, in most of which nothing else ran on that processor.
func costOfACall(t *testing.T, read bool, depth string) float64 {
	m := newMachine(t, 1)
	m.trace(func(c *Config) { c.marked = read })
	p := m.start(nil, m.program("bench_c"), "cudart", depth, "1", "--seconds", "1", "--wait", "--hold")
	p.ready()
	m.snapshot()
	stats := func() *ebpf.ProgramStats {
		s, err := m.Tracer.prober.Programs()["alloc_enter"].Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	done := make(chan error)
	before := stats()
	p.next()
	go func() {
		for {
			if line, err := p.out.ReadString('\n'); err != nil || line == "done\n" {
				done <- err
				return
			}
		}
	}()
	var ns []float64
	for tick := time.NewTicker(time.Millisecond); ; {
		select {
		case err := <-done:
			p.end()
			if err != nil || len(ns) < 20 {
				t.Fatalf("%d intervals, %v", len(ns), err)
			}
			slices.Sort(ns)
			return ns[len(ns)/4]
		case <-tick.C:
			after := stats()
			if runs := after.RunCount - before.RunCount; runs >= 50 {
				ns, before = append(ns, float64(after.Runtime-before.Runtime)/float64(runs)), after
			}
		}
	}
}
