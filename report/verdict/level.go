// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// byLevel finds windows up to now in which the floor, or the mean, rises by a trend that neither
// slows down nor consists of a few steps: for example, a list of results that is copied into a
// longer one each time, so that no block survives for long. A level is the mean of so many samples.
func (v *series) byLevel(level []float64, samples float64) (run, bool) {
	n := len(level)
	slows := false
	for from := 0; from+fewWindows+1 < n && !(slows && float64(from) > lumps*float64(n)); from++ {
		f := level[from:]
		growth := f[len(f)-1] - f[0]
		if growth <= 0 || f[1] <= f[0] || mannKendall(f) < 1.96 {
			continue
		}
		rate := theilSen(f)
		hits, largest, highs := 0, 0.0, 0
		var list []float64
		for i := 1; i < len(f); i++ {
			step := f[i] - f[i-1]
			if step > 0 {
				hits++
			}
			largest = max(largest, step)
			list = append(list, step)
			if w := &v.w[from+i]; w.High > 0 {
				highs++
			}
		}
		steps := len(f) - 1
		quarter := max(steps/4, 1)
		half, late := f[steps]-f[steps/2], theilSen(f[steps-max(quarter, min(3, steps)):])
		switch {
		case hits < minSurvivors && !(v.torn && hits >= minWindows), float64(hits) < 0.6*float64(steps):
		case mean(list).Low <= 0: // a level that wanders may have come here
		case largest > 0.4*growth || float64(highs) < 0.5*float64(steps):
		case half < goesOn*growth, late.Value < goesOn*growth/float64(steps):
			slows = true
		case growth < f[steps]/3 && (hits < steps || steps < ledger.CohortLen/2):
		case growth < v.sampling(f[steps], samples):
		case rate.Value*float64(quarter) < v.sampling(max(f[steps]-v.sum(0, n-quarter).bytes, 0), samples)*2/3: // an end would not be seen
		default:
			k := 1 / v.window
			return run{from: from, to: n, rate: Rate{rate.Value * k, rate.Low * k, rate.High * k}, hits: hits, floor: true}, true
		}
	}
	return run{}, false
}

// redrawn reports whether the floor may be lower than the mean only because a sample is drawn anew
// where all tensors are replaced again and again: the floor is the least of many samples. Otherwise
// memory comes and goes, and its mean proves nothing.
func (v *series) redrawn() bool {
	all := v.sum(0, len(v.w))
	objects := 0.0
	for i := range v.w {
		objects += float64(v.w[i].LiveObjects)
	}
	if all.seen*v.turnover() < minSurvivors || objects <= all.seen {
		return false
	}
	block := all.bytes / all.seen * (1 - all.seen/objects)
	for i := 1; i < len(v.w); i++ {
		mean := min(float64(v.w[i-1].Mean), float64(v.w[i].Mean))
		if float64(v.w[i].Floor) < mean-4*math.Sqrt(mean*block) {
			return false
		}
	}
	return true
}

// onAverage finds a mean that rises up to now where the floor does not: memory that comes and goes,
// but more each time. It is a proof if nearly each window has a new maximum.
func (v *series) onAverage() (run, Class) {
	n := len(v.w)
	if v.torn || n < 2*minWindows || float64(v.w[n-1].Mean) < v.peak/4 {
		return run{}, 0
	}
	f := v.means(0, n)
	growth := f[n-1] - f[n/2]
	enough := goesOn * growth / float64(n-1-n/2)
	if mannKendall(f) < 1.96 || growth < f[n-1]/5 || f[n-1]-f[n-2] < enough || f[n-2]-f[n-3] < enough {
		return run{}, 0
	}
	r, ok := v.byLevel(f, v.turnover())
	highs := 0
	for i := range v.w {
		if v.w[i].High > 0 {
			highs++
		}
	}
	if ok && r.hits+1 >= n-r.from-1 && highs+1 >= n {
		return r, v.longEnough(&r)
	}
	rate, k := theilSen(f[n/2:]), 1/v.window
	return run{
		from: n / 2, to: n, hits: n - n/2, rate: Rate{max(rate.Value, 0) * k, max(rate.Low, 0) * k, max(rate.High, 0) * k},
		why: "allocated and freed in each window; the average rises", needs: v.width(0, n) * v.window,
	}, Growing
}
