// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// row adds the metrics of one row.
func (w *writer) row(r *row) {
	add := func(f id, n uint64, more ...string) { w.add(f, float64(n), r.values(w.options.PID, more...)...) }
	if r.running {
		for i, name := range planes {
			add(memoryBytes, r.planes[i], name)
		}
	}
	for i, name := range outside {
		if r.outside[i] > 0 {
			add(outsideBytes, r.outside[i], name)
		}
	}
	if r.overbooked > 0 {
		add(overbookedBytes, r.overbooked)
	}
	if r.peak > 0 {
		add(peakBytes, r.peak)
	}
	if r.nvml > 0 {
		add(nvmlPeakBytes, r.nvml)
	}
	if r.allocator.read {
		for _, k := range report.CacheKinds {
			add(cacheBytes, r.allocator.kinds[k], string(k))
		}
		add(allocatorRetries, r.allocator.retries)
		add(allocatorPeak, r.allocator.peak)
	}
	if r.untraced > 0 {
		add(untracedBytes, r.untraced)
	}
	w.verdictsOf(r)
	for _, at := range r.memory.ordered() {
		x := r.memory[at]
		add(allocations, x.allocs, at.what)
		add(allocatedBytes, x.allocBytes, at.what)
		add(frees, x.frees, at.what)
		add(freedBytes, x.freedBytes, at.what)
	}
	for _, at := range r.failures.ordered() {
		add(failures, r.failures[at].allocs, at.what)
	}
	if r.running || r.ooms > 0 {
		add(outOfMemory, r.ooms)
	}
}

// verdictsOf adds the verdicts of a row. That nothing leaks is said too.
func (w *writer) verdictsOf(r *row) {
	if w.options.Verdicts.Latest() == nil {
		return
	}
	for class := verdict.Unknown; class <= verdict.Leaking; class++ {
		x := &r.verdicts[class]
		if x.lines == 0 && !(r.running && class == verdict.Leaking) {
			continue
		}
		values := r.values(w.options.PID, class.String())
		w.add(verdictLines, float64(x.lines), values...)
		w.add(verdictBytes, float64(x.bytes), values...)
		if class >= verdict.Growing {
			w.add(growth, x.rate, values...)
		}
	}
}

// gpus adds what NVML reports for GPUs. The memory of a GPU with MIG instances is theirs.
func (w *writer) gpus(d *reading) {
	for i := range d.s.GPUs {
		g := d.gpus[d.s.GPUs[i].UUID]
		uuid := label(g.UUID)
		w.add(gpuInfo, 1, g.label, uuid, label(g.Name), label(g.Parent))
		if g.divided {
			continue
		}
		used := g.Now()
		w.add(gpuUsed, float64(used), g.label, uuid)
		w.add(gpuTotal, float64(g.Total), g.label, uuid)
		w.add(gpuUntraced, max(float64(used)-float64(g.planes), 0), g.label, uuid)
		if g.read > 0 {
			w.add(nvmlAge, seconds(d.s.End, g.read), g.label, uuid)
		}
	}
}

// growths adds how what GPUs are used for grows.
func (w *writer) growths(d *reading, v *watch.Verdicts) {
	if v == nil {
		return
	}
	for i := range v.GPUs {
		g := d.gpus[v.GPUs[i].UUID]
		if g == nil || g.divided {
			continue
		}
		uuid := label(g.UUID)
		if full := v.GPUs[i].Full; full > 0 {
			w.add(gpuFull, full.Seconds(), g.label, uuid)
		}
		for _, p := range v.GPUs[i].Planes {
			class, rate := verdict.Leaking, 0.0
			if p.Class >= verdict.Growing {
				class, rate = p.Class, p.Rate
			}
			w.add(gpuGrowth, rate, g.label, uuid, p.Name, class.String())
		}
	}
}

// seconds returns the time from one moment to another.
func seconds(now, then uint64) float64 {
	if now < then {
		return 0
	}
	return time.Duration(now - then).Seconds()
}

func (w *writer) books(s *ledger.Snapshot) {
	running := 0
	for i := range s.Processes {
		if s.Processes[i].End == 0 {
			running++
		}
	}
	st := &s.Stats
	w.add(processes, float64(running))
	w.total(forgotten, s.Forgotten.Processes)
	w.total(events, st.Events)
	w.total(lostEvents, st.Lost)
	w.reasons(lostReasons, st.LostFor)
	w.total(unmatchedFrees, st.UnmatchedFrees)
	w.total(evicted, st.Evicted)
	w.total(reused, st.Reused)
	w.total(foldedSites, st.Folded)
	w.add(unknownSizes, float64(st.UnknownSizes))
	w.reasons(missingStacks, st.Missing)
	if st.Torn > 0 {
		w.total(missingStacks, st.Torn, "overwritten while it was copied")
	}
	w.reasons(truncatedStacks, st.Truncated)
	if st.Cost.Price > 0 {
		w.add(tracingRatio, st.Cost.Latest.Share())
	}
}

// reasons adds counts by reason. The reasons are vramprof's own words, and few.
func (w *writer) reasons(f id, by map[string]uint64) {
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		w.total(f, by[reason], label(reason))
	}
}

func (w *writer) verdicts(s *ledger.Snapshot) {
	if v := w.options.Verdicts.Latest(); v != nil {
		w.add(verdictAge, seconds(s.End, v.At))
	}
	failed := w.options.Verdicts.Panics()
	for _, place := range slices.Sorted(maps.Keys(failed)) {
		w.total(internalErrors, failed[place], place)
	}
}
