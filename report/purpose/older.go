// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// older divides what was allocated before the attach or while it was not traced: its stacks are
// unknown.
func (d *divider) older(x *part, w *ledger.Walked, all sums, doubt *Doubt, kept keepers) {
	rest, saved := x.OlderAllocated+x.Untraced, uint64(0)
	if w != nil {
		held := make([]uint64, len(w.Held))
		var sum uint64
		for i, left := range w.Left {
			if left > 0 && i < len(held) && d.isOn(x, w.Held[i].Device) {
				held[i] = left
				sum += left
			}
		}
		if sum > rest {
			held = fitted(rest, held, w.Held)
		}
		for i, bytes := range held {
			rest -= bytes
			for kind, n := range dividedByPart(&w.Held[i], bytes) {
				if n > 0 {
					s := byPart(modelpart.Kind(kind), &w.Held[i])
					kept.add(s.kind, i, n)
					if s.kind == Activations {
						saved += n
					} else {
						all[s] += n
					}
				}
			}
		}
		d.inModules(x, w, saved, all, doubt)
	}
	all[share{kind: Tensors}] += rest
}

// inModules divides what the graph has saved by the instances of modules that a walk found.
func (d *divider) inModules(x *part, w *ledger.Walked, saved uint64, all sums, doubt *Doubt) {
	names, weights := []string{""}, []uint64{0}
	var sum, sure uint64
	for i := range w.Saved {
		if m := &w.Saved[i]; d.isOn(x, m.Device) {
			names, weights = append(names, m.Module), append(weights, m.Bytes)
			sum, sure = sum+m.Bytes, sure+m.Sure
		}
	}
	for i := range w.Held {
		if d.isOn(x, w.Held[i].Device) {
			weights[0] += w.Held[i].Parts[modelpart.Saved]
		}
	}
	weights[0] = report.Minus(weights[0], sum)
	shares := apportion(saved, weights)
	if shares == nil {
		shares = []uint64{saved}
	}
	for i, n := range shares {
		if n > 0 {
			all[share{kind: Activations, name: names[i], byHolder: true}] += n
		}
	}
	if sum > 0 && saved > 0 {
		doubt.InModules, doubt.SureModules = sum, sure
	}
}

// fitted divides a total among what holders have, which is more: what comes and goes in a step
// makes room for what lasts.
func fitted(total uint64, held []uint64, of []ledger.Held) []uint64 {
	list := make([]uint64, len(held))
	for _, lasts := range []bool{true, false} {
		some := make([]uint64, len(held))
		var sum uint64
		for i, n := range held {
			if of[i].Lasts() == lasts {
				some[i] = n
				sum += n
			}
		}
		if sum > total {
			some = apportion(total, some)
		}
		for i, n := range some {
			list[i] += n
			total -= n
		}
	}
	return list
}
