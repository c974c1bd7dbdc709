// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// large is a machine with so many processes on 8 GPUs, and sites in them.
func large(processes, sites int) (*ledger.Snapshot, callstack.Stacks) {
	s := &ledger.Snapshot{Host: "gpu-box", Begin: 1, End: 100 * reporttest.Second}
	for i := range 8 {
		s.GPUs = append(s.GPUs, ledger.GPU{Index: i, UUID: fmt.Sprintf("GPU-%08d", i), Name: "NVIDIA H100 80GB HBM3", Total: 80 << 30, Used: 40 << 30})
	}
	for i := range processes {
		s.Processes = append(s.Processes, ledger.Process{PID: uint32(1000 + i), Comm: "python3", Begin: 1, User: 1001, Devices: []string{s.GPUs[i%8].UUID}})
		s.Balances = append(s.Balances, ledger.Balance{Process: i, UUID: s.GPUs[i%8].UUID, Usage: 1 << 30, Baseline: 300 << 20, Live: 700 << 20})
	}
	stacks := reporttest.StackMap{}
	base := reporttest.TorchStacks()[1]
	for i := range sites {
		id := uint64(i + 1)
		stacks[id] = append([]callstack.Frame(nil), base...)
		for k := range stacks[id] {
			if f := &stacks[id][k]; f.Python {
				f.Line = 1 + i/processes
			}
		}
		s.Sites = append(s.Sites, ledger.Site{Process: i % processes, Stack: id, Kind: ledger.Device, LiveBytes: uint64(i) << 12, LiveObjects: 7, AllocObjects: 9, Oldest: 5, Growth: 100, History: reporttest.Ramp(uint64(i) << 12)})
	}
	return s, stacks
}

// BenchmarkRefresh is what one moment costs, from receiving it to the drawn screen, by view.
// Judging is not in it.
func BenchmarkRefresh(b *testing.B) {
	for _, size := range [][2]int{{1, 50}, {200, 5000}} {
		s, st := large(size[0], size[1])
		judged := Judge(s, st)
		for k, view := range []string{"gpus", "processes", "tree", "timeline", "list"} {
			b.Run(fmt.Sprintf("%dprocesses/%s", size[0], view), func(b *testing.B) {
				m := screenOf(120, 40, Options{Flat: view == "list"}, Moment{Snapshot: s, Stacks: st, Judged: judged})
				press(m, []string{"1", "2", "3", "4", "3"}[k])
				b.ReportAllocs()
				for b.Loop() {
					x := *s
					x.End += uint64(m.series.seen) * reporttest.Second
					send(m, Moment{Snapshot: &x, Stacks: st, Judged: judged})
					m.View()
				}
			})
		}
	}
}

// BenchmarkKey is what a key costs.
func BenchmarkKey(b *testing.B) {
	s, st := large(200, 5000)
	m := screenOf(120, 40, Options{Flat: true}, Moment{Snapshot: s, Stacks: st, Judged: Judge(s, st)})
	press(m, "3")
	for b.Loop() {
		press(m, "j")
		m.View()
	}
}

// BenchmarkHour shows an hour of a large session, a moment a second, and reports the heap after a
// tenth of it and at its end, in MB. scripts/bench.sh --only top runs it.
func BenchmarkHour(b *testing.B) {
	s, st := large(200, 5000)
	judged := Judge(s, st)
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	for b.Loop() {
		m := screenOf(120, 40, Options{})
		begin, early := time.Now(), 0.0
		for second := range 3600 {
			x := *s
			x.End += uint64(second) * reporttest.Second
			x.Sites = append([]ledger.Site(nil), s.Sites...)
			for i := range x.Sites {
				x.Sites[i].LiveBytes += uint64(second) << 10
			}
			send(m, Moment{Snapshot: &x, Stacks: st, Judged: judged, Note: fmt.Sprint("message ", second)})
			m.View()
			if second == 360 {
				early = heap()
			}
		}
		b.ReportMetric(early, "early-MB")
		b.ReportMetric(heap(), "late-MB")
		b.ReportMetric(time.Since(begin).Seconds(), "s-played")
		runtime.KeepAlive(m)
	}
}
