// SPDX-License-Identifier: Apache-2.0

package sums_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/metrics"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestThePeakIsOne: "report --at peak", the timeline, the page and the metric have one moment and
// one figure, those that the ledger noted when it happened.
func TestThePeakIsOne(t *testing.T) {
	for seed := range uint64(6) {
		r, _ := recorded(t, seed)
		at, err := source.Peak().In(r)
		if err != nil {
			t.Fatal(err)
		}
		s, tl, _, err := replay.Timeline(r, replay.First(r), math.MaxUint64)
		if err != nil {
			t.Fatal(err)
		}
		process := slices.IndexFunc(s.Processes, func(p ledger.Process) bool { return p.PeakTime == at })
		if process < 0 {
			t.Fatalf("seed %d: no process has its peak at %d", seed, at)
		}
		p := &s.Processes[process]
		if got := tensorsAt(t, r, at, p.PID); got != p.PeakBytes {
			t.Errorf("seed %d: at its peak the process has %d, its peak is %d", seed, got, p.PeakBytes)
		}
		k := slices.Index(tl.Times, at)
		if k < 0 {
			t.Fatalf("seed %d: the timeline has no moment %d", seed, at)
		}
		row := tl.Rows[slices.IndexFunc(tl.Rows, func(x timeline.Row) bool { return tl.Processes[x.Process].PID == p.PID })]
		if row.Tensors[k] != p.PeakBytes || slices.Max(row.Tensors) != p.PeakBytes {
			t.Errorf("seed %d: the timeline has %d then, %d at most, want %d", seed, row.Tensors[k], slices.Max(row.Tensors), p.PeakBytes)
		}
		if got := peakOfPage(t, s, r, tl); got != at-tl.Times[0] {
			t.Errorf("seed %d: the page has its peak after %d, want %d", seed, got, at-tl.Times[0])
		}
		if got := peakMetric(t, s); got != float64(p.PeakBytes) {
			t.Errorf("seed %d: the metric is %.0f, want %d", seed, got, p.PeakBytes)
		}
	}
}

// tensorsAt returns what the tensors of a process have at a moment of a capture.
func tensorsAt(t *testing.T, r *capture.Reader, at uint64, pid uint32) uint64 {
	t.Helper()
	s, err := r.Snapshot(at)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Tensors {
		if x := &s.Tensors[i]; s.Processes[x.Process].PID == pid {
			return x.Allocated
		}
	}
	return 0
}

// peakOfPage returns the time of the page's moment "peak" after its first moment.
func peakOfPage(t *testing.T, s *ledger.Snapshot, r *capture.Reader, tl *timeline.Timeline) uint64 {
	t.Helper()
	list, err := html.Sections(html.Input{Snapshot: s, Stacks: r, Timeline: tl})
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Chart struct {
			Times, Grid []int64
			Peak        int
		}
	}
	if err := json.Unmarshal(html.Join(list), &page); err != nil {
		t.Fatal(err)
	}
	grid := summed(page.Chart.Grid)
	times := summed(page.Chart.Times)
	return uint64(times[grid[page.Chart.Peak]] - times[0])
}

// summed returns the values of a column that begins with one and goes on with differences.
func summed(list []int64) (values []int64) {
	sum := int64(0)
	for _, n := range list {
		sum += n
		values = append(values, sum)
	}
	return values
}

// peakMetric returns the highest vramprof_peak_bytes.
func peakMetric(t *testing.T, s *ledger.Snapshot) (most float64) {
	t.Helper()
	c := metrics.New(metrics.Options{PID: true})
	c.Set(s, metrics.Own{})
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "vramprof_peak_bytes" {
			for _, m := range f.Metric {
				most = max(most, m.GetGauge().GetValue())
			}
		}
	}
	return most
}
