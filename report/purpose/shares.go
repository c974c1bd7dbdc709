// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"cmp"
	"maps"
	"slices"

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
