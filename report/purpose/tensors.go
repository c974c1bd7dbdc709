// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// tensors divides what PyTorch's allocator has given out. Holders decide where they prove a
// purpose; stacks decide the rest.
func (d *divider) tensors(x *part, rows rowSet, doubt *Doubt) {
	all := sums{}
	w := d.s.LatestWalk(x.Process)
	if w != nil && w.Failure != "" {
		w = nil
	}
	if w != nil && x.Tensors+x.OlderAllocated+x.Untraced > 0 {
		doubt.Walked = w.Time
	}
	kept := keepers{}
	d.older(x, w, all, doubt, kept)
	d.newer(x, w, all, doubt, kept)
	if w != nil {
		kept.enter(rows, w)
	}
	for s, bytes := range all {
		row := rows.row(s.kind, "")
		row.Bytes += int64(bytes)
		if s.byHolder {
			row.ByHolders += bytes
		}
		if s.byStack {
			row.ByStacks += bytes
		}
		switch s.kind {
		case Activations:
			row.piece(Piece{Module: s.name, Bytes: bytes})
		case KVCache:
			row.piece(Piece{Holder: s.name, Bytes: bytes})
		case Workspaces:
			row.piece(Piece{Part: s.name, Line: s.line, Bytes: bytes})
		}
	}
}

// newer divides what was allocated since the attach.
func (d *divider) newer(x *part, w *ledger.Walked, all sums, doubt *Doubt, kept keepers) {
	held, unheld := map[int]sums{}, sums{} // of sites, by holder: what both show
	exact := d.exact(x, w)
	var sampled uint64
	for i := range d.s.Sites {
		site := &d.s.Sites[i]
		if site.Process != x.Process || site.Kind != ledger.Tensor || site.Device == ledger.CPUDevice || !d.isOn(x, site.Device) {
			continue
		}
		live := report.Awake(site)
		sampled += live
		stack := d.stacks.of(site)
		rest := live
		if w != nil {
			for _, h := range ledger.Divide(site.Holders, site.LiveBytes, live) {
				if h.Holder < 0 || h.Holder >= len(w.Held) || w.Held[h.Holder].Path == report.NoHolder {
					continue
				}
				bytes := min(h.Bytes, rest)
				rest -= bytes
				if held[h.Holder] == nil {
					held[h.Holder] = sums{}
				}
				byBoth(held[h.Holder], &w.Held[h.Holder], bytes, stack, exact, doubt)
			}
		}
		d.onStreams(x, site, rest, stack, unheld)
	}
	if sampled < x.Tensors {
		unheld[share{kind: Tensors}] += x.Tensors - sampled
	}
	rest := x.Tensors
	for _, p := range d.fitted(x, w, held, exact) {
		for _, s := range sortedShares(p.sums) {
			bytes := min(p.sums[s], rest)
			all[s] += bytes
			kept.add(s.kind, p.holder, bytes)
			rest -= bytes
		}
	}
	for s, bytes := range unheld.fit(rest) {
		all[s] += bytes
	}
}

// onStreams is sums.byStack by stream, where the purpose of a site depends on it.
func (d *divider) onStreams(x *part, site *ledger.Site, bytes uint64, stack byStack, all sums) {
	if c := d.cacheOn(x); c != nil && stack.kind == Workspaces {
		names := report.StreamNames(&c.Cache)
		for _, s := range c.OnStreams {
			if s.Stack != site.Stack {
				continue
			}
			on := stack
			on.name += " on " + names[s.Stream]
			n := min(s.Bytes, bytes)
			all.byStack(n, on)
			bytes -= n
		}
	}
	all.byStack(bytes, stack)
}

// exact reports whether nothing was allocated or freed since the walk, as far as totals show it:
// then what the walk found is what there is.
func (d *divider) exact(x *part, w *ledger.Walked) bool {
	if w == nil {
		return false
	}
	for i := range w.Allocators {
		t := d.s.TensorsOn(x.Process, w.Allocators[i].Device)
		if d.isOn(x, w.Allocators[i].Device) && (t == nil || t.Allocated != w.Allocators[i].Allocated || w.Allocators[i].Excess > 0) {
			return false
		}
	}
	return len(w.Allocators) > 0
}

// heldSums are the sums of one holder, an index of Walked.Held.
type heldSums struct {
	holder int
	sums   sums
}

// fitted returns the bytes of each holder by purpose: as the walk found them if that is exact, else
// as the sites have them.
func (d *divider) fitted(x *part, w *ledger.Walked, held map[int]sums, exact bool) (list []heldSums) {
	if w == nil {
		return nil
	}
	for i := range w.Held {
		h := &w.Held[i]
		if !d.isOn(x, h.Device) || h.Path == report.NoHolder {
			continue
		}
		by := held[i]
		switch newer := report.Minus(h.Bytes, h.Older+h.Driver); {
		case !exact && newer > 0 && lasted(h):
			list = append(list, heldSums{i, exactly(h, newer, by)})
		case !exact && by != nil:
			list = append(list, heldSums{i, by})
		case !exact || newer == 0:
		case by == nil:
			by = sums{}
			byBoth(by, h, newer, byStack{kind: Tensors}, exact, &Doubt{})
			list = append(list, heldSums{i, by})
		default:
			list = append(list, heldSums{i, exactly(h, newer, by)})
		}
	}
	return list
}

// lasted reports whether the walks before and after the moment found the same bytes of a holder,
// all of them parts of a model that last: then it had these at the moment, whatever the sample
// shows.
func lasted(h *ledger.Held) bool {
	return h.Lasted && h.Parts[modelpart.Weight]+h.Parts[modelpart.State]+h.Parts[modelpart.Buffer] == h.Parts.Sum()
}

// exactly returns what a walk found of a holder, with what stacks add: the module, and the purpose
// of what is no part of a model.
func exactly(h *ledger.Held, bytes uint64, by sums) sums {
	out := sums{}
	for kind, n := range dividedByPart(h, bytes) {
		of := sums{}
		for s, weight := range by {
			if s.part() == modelpart.Kind(kind) {
				of[s] += weight
			}
		}
		if len(of) == 0 && n > 0 {
			of[byPart(modelpart.Kind(kind), h)] = n
		}
		for s, m := range of.fit(n) {
			out[s] += m
		}
	}
	return out
}

// byBoth adds bytes of a site that a holder keeps. Exact is whether a walk found just what there
// is: what a forward pass made and no graph has saved is then a result that a variable keeps.
func byBoth(all sums, h *ledger.Held, bytes uint64, stack byStack, exact bool, doubt *Doubt) {
	for kind, n := range dividedByPart(h, bytes) {
		of := partKinds[kind]
		switch {
		case n == 0:
			continue
		case modelpart.Kind(kind) == modelpart.None && exact && h.Parts.Sum() > 0 && stack.kind == Activations:
			all.byStack(n, byStack{kind: Tensors})
			continue
		case modelpart.Kind(kind) == modelpart.None:
			all.byStack(n, stack)
			continue
		case of == Activations && stack.input: // the graph has saved what came from outside
			all[share{kind: Inputs, byHolder: true, byStack: true}] += n
			continue
		}
		same := stack.kind == of || of == Gradients && stack.kind == Backward
		s := byPart(modelpart.Kind(kind), h)
		s.byStack = same
		switch of {
		case Activations:
			s.name = stack.module
		case Workspaces:
			s.name, s.line = stack.name, stack.line
		}
		all[s] += n
		if stack.kind != Tensors {
			doubt.Both += n
			if same {
				doubt.Same += n
			}
		}
	}
}
