// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/modelpart"
)

// partKinds are the purposes of parts of a model.
var partKinds = [modelpart.Kinds]Kind{
	modelpart.None: Tensors, modelpart.Weight: Weights, modelpart.Gradient: Gradients, modelpart.State: State,
	modelpart.KVCache: KVCache, modelpart.Buffer: Buffers, modelpart.Saved: Activations, modelpart.Workspace: Workspaces,
}

// share is memory of one purpose.
type share struct {
	kind     Kind
	name     string // of Activations: the module; of KVCache: the path of the holder; of Workspaces: byStack.name
	line     string // of Workspaces
	byHolder bool
	byStack  bool
}

// sums has bytes by purpose.
type sums map[share]uint64

// tensors divides what PyTorch's allocator has given out. Holders decide where they prove a
// purpose; stacks decide the rest.
func (d *divider) tensors(x *part, rows rowSet, doubt *Doubt) {
	all := sums{}
	w := d.s.LatestWalk(x.Process)
	if w != nil && w.Failure != "" {
		w = nil
	}
	if w != nil && x.Tensors+x.OlderAllocated > 0 {
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

// older divides what was allocated before the attach: its stacks are unknown.
func (d *divider) older(x *part, w *ledger.Walked, all sums, doubt *Doubt, kept keepers) {
	rest, saved := x.OlderAllocated, uint64(0)
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

// byPart returns what a part of a model is for, by its holder alone.
func byPart(kind modelpart.Kind, h *ledger.Held) share {
	s := share{kind: partKinds[kind], byHolder: kind != modelpart.None}
	if s.kind == KVCache {
		s.name = h.Path
	}
	return s
}

// dividedByPart divides bytes of a holder as a walk found its storages.
func dividedByPart(h *ledger.Held, bytes uint64) (list [modelpart.Kinds]uint64) {
	shares := apportion(bytes, h.Parts[:])
	if shares == nil { // a capture of an older version
		list[modelpart.None] = bytes
		return list
	}
	copy(list[:], shares)
	return list
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

// part returns the part of a model that a share is taken for by its holder.
func (s share) part() modelpart.Kind {
	if !s.byHolder {
		return modelpart.None
	}
	for kind, of := range partKinds {
		if of == s.kind || s.kind == Inputs && modelpart.Kind(kind) == modelpart.Saved {
			return modelpart.Kind(kind)
		}
	}
	return modelpart.None
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

// byStack adds bytes whose purpose only a stack shows.
func (all sums) byStack(bytes uint64, stack byStack) {
	if bytes == 0 {
		return
	}
	s := share{kind: stack.kind, byStack: stack.kind != Tensors}
	switch stack.kind {
	case Activations:
		s.name = stack.module
	case Workspaces:
		s.name, s.line = stack.name, stack.line
	}
	all[s] += bytes
}

// fit returns the sums in proportion, so that they add up to a total.
func (all sums) fit(total uint64) sums {
	keys := sortedShares(all)
	weights := make([]uint64, len(keys))
	for i, s := range keys {
		weights[i] = all[s]
	}
	shares := apportion(total, weights)
	if shares == nil {
		return sums{{kind: Tensors}: total}
	}
	out := sums{}
	for i, s := range keys {
		out[s] += shares[i]
	}
	return out
}

// sortedShares returns the purposes in an order that does not depend on the map's.
func sortedShares(all sums) []share {
	keys := slices.Collect(maps.Keys(all))
	slices.SortFunc(keys, func(a, b share) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), cmp.Compare(a.line, b.line), compareBool(a.byHolder, b.byHolder), compareBool(a.byStack, b.byStack))
	})
	return keys
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
