// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"

	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// retention returns how the path keeps what it leads to.
func (h *Holder) retention() retention.Set {
	set := retention.Known
	if h.root.Ended && h.root.Where() != "" {
		set |= retention.EndedByError
	}
	steps := h.Steps()
	if h.root.Kind == RootModule && h.root.Name == "sys" && len(steps) > 0 && strings.HasPrefix(steps[0].Name, "last_") {
		set |= retention.LastError
	}
	owner := Step{Class: h.root.Class}
	for _, s := range steps {
		if s.Kind == StepGraph { // it stands beside the path
			set |= retention.Graph
			continue
		}
		set = set&^retention.Gradient | s.retention() | s.retentionIn(&owner)
		owner = s
	}
	return set
}

// retention returns what one step says about the way in which a path keeps memory.
func (s *Step) retention() retention.Set {
	switch {
	case s.Kind == StepGrad, s.Kind == StepAttr && s.Name == "grad":
		return retention.Gradient
	case s.Kind == StepLocal:
		return retention.Frame
	case s.Name == "__traceback__":
		return retention.Traceback
	}
	return 0
}

// retentionIn returns what a step says together with the one before it, which leads to its owner.
func (s *Step) retentionIn(owner *Step) retention.Set {
	switch {
	case owner.Class == "_lru_cache_wrapper" && s.Name == "cache":
		return retention.Cache
	case owner.Class == "WeakKeyDictionary" && s.Name == "data":
		return retention.WeakKeys
	case owner.Name == "Out" && s.Kind == StepKey:
		return retention.Results
	case owner.Name == "state" && s.Kind == StepKey && s.Name == "": // by parameter, which has no name
		return retention.OptimizerState
	case owner.Name == "param_groups" && s.Kind == StepIndex:
		return retention.ParamGroups
	}
	return 0
}

// thing returns what a person would name of the path: the innermost container whose elements, without a name, lead to
// what is kept, and many; else the whole path without its graph.
func (h *Holder) thing() (text string, many bool) {
	steps := h.Steps()
	for k := len(steps) - 1; k >= 0; k-- {
		s := &steps[k]
		if s.Kind == StepIndex || s.Kind == StepElement || s.Kind == StepEntry || s.Kind == StepKey && s.Name == "" {
			steps, many = steps[:k], true
			break
		}
	}
	var b strings.Builder
	h.root.begin(&b, h.named)
	for _, s := range steps {
		if s.Kind == StepGraph {
			break
		}
		s.write(&b, true, h.named)
	}
	return strings.TrimPrefix(b.String(), "."), many
}
