// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

// graphProof is what holders prove about an autograd graph.
type graphProof uint8

const (
	unproven graphProof = iota // no holder is known
	isGraph
	isNoGraph
)

// byGraph reports whether holders keep the memory of some sites through an autograd graph, and the
// holder that keeps most of it, or nil.
func (a *adviser) byGraph(p int, sites []int) (graphProof, *ledger.Holder) {
	walk := a.s.LatestWalk(p)
	if walk == nil {
		return unproven, nil
	}
	var graph, all uint64
	paths, holders := map[string]uint64{}, map[string]*ledger.Holder{}
	for _, i := range sites {
		for _, h := range a.s.Sites[i].Holders {
			if h.Holder < 0 || h.Holder >= len(walk.Held) || !walk.Held[h.Holder].Found {
				continue
			}
			all += h.Bytes
			if keeper := &walk.Held[h.Holder].Holder; keeper.Retention.Has(retention.Graph) {
				graph += h.Bytes
				paths[keeper.Path] += h.Bytes
				holders[keeper.Path] = keeper
			}
		}
	}
	best := ""
	for keeper, n := range paths {
		if best == "" || n > paths[best] || n == paths[best] && keeper < best {
			best = keeper
		}
	}
	switch {
	case all == 0:
		return unproven, nil
	case graph >= all/2:
		return isGraph, holders[best]
	}
	return isNoGraph, nil
}

// growing returns the sites of a device whose tensors grow, if one of them leaks for sure: others
// may have too few samples.
func (a *adviser) growing(p int, device int32, keep func(v *Verdict) bool) []int {
	proved := false
	list := a.sites(p, device, func(x *ledger.Site, v *Verdict) bool {
		if v.Class < Growing || x.Kind != ledger.Tensor || device < 0 || x.Stack == 0 || !keep(v) {
			return false
		}
		proved = proved || v.Class == Leaking
		return true
	})
	if !proved {
		return nil
	}
	return list
}

// graphs detects a kept graph: everything that its forward pass saved grows. A single growing
// tensor may be kept for its own sake, and so may all tensors of a model that is kept with its
// optimizer. Without holders, tensors that something else keeps look the same: see layers.
func (a *adviser) graphs(p int, device int32, anyBackward bool) {
	if whole := a.growing(p, device, func(v *Verdict) bool { return v.Object == objectParameter || v.Object == objectOptimizer }); whole != nil {
		return
	}
	forward := a.growing(p, device, func(v *Verdict) bool { return !isBackward(v.Object) })
	backward := a.growing(p, device, func(v *Verdict) bool { return isBackward(v.Object) })
	switch proof, keeper := a.byGraph(p, forward); {
	case proof == isNoGraph:
	case a.layers(forward) > 1 && (proof == isGraph || !a.withoutGradients(forward)):
		a.keptGraph(p, device, forward, anyBackward, keeper)
	}
	switch proof, _ := a.byGraph(p, backward); {
	case len(backward) == 0 || proof == isNoGraph && len(forward) > 0:
	case len(forward) > 0:
		a.say(BackwardKept, p, device, backward, "what a backward pass made is kept with its graph: leave out create_graph=True and retain_graph=True where not needed, use torch.autograd.grad() for penalties",
			fmt.Sprintf("%s of the backward pass and %s of the forward pass leak", format.Count(uint64(len(backward)), "stack"), format.Count(uint64(len(forward)), "stack")))
	default:
		text := "gradients are kept: copy their figures (grad.norm().item()) instead of the tensors"
		if a.addsSparse(backward) {
			text = "sparse gradients add up until they are cleared: call zero_grad() of the module in each step, or set requires_grad to False where no optimizer has the parameter"
		}
		a.say(BackwardKept, p, device, backward, text,
			fmt.Sprintf("%s of the backward pass, and none of the forward pass, leak", format.Count(uint64(len(backward)), "stack")))
	}
}

// addsSparse reports whether each of some sites adds a sparse gradient to another: appends it.
func (a *adviser) addsSparse(sites []int) bool {
	return !slices.ContainsFunc(sites, func(i int) bool {
		return a.verdicts[i].Object != objectGradient || !slices.ContainsFunc(a.stack(&a.s.Sites[i]), func(f callstack.Frame) bool {
			return strings.HasPrefix(f.Function, "at::native::add_out_sparse")
		})
	})
}

// keptGraph gives the advice on a graph that a path keeps; without one, it is not proven.
func (a *adviser) keptGraph(p int, device int32, forward []int, anyBackward bool, keeper *ledger.Holder) {
	line, caller := a.common(forward)
	evidence := fmt.Sprintf("%d stacks of a forward pass leak%s%s", len(forward), at(" below ", line), at(", called from ", caller))
	perhaps, prove := "perhaps ", fmt.Sprintf("; vramprof holders -p %d shows what keeps it", a.s.Processes[p].PID)
	if keeper != nil {
		perhaps, prove = "", ""
		evidence += ", kept by " + keeper.Path
	}
	advice := a.say(GraphKept, p, device, forward, "what a forward pass made is kept, "+perhaps+"by a loss or an output that holds its graph: keep loss.item() or output.detach() instead"+prove, evidence)
	if !anyBackward {
		advice.Pattern, advice.Text = NoGrad, "outputs are kept, "+perhaps+"with the graph behind them, and nothing computes gradients: wrap the forward pass in torch.no_grad() or torch.inference_mode()"+prove
		advice.Evidence += ", and no backward pass was seen"
	}
	if keeper != nil {
		if thing, many := thingOf(keeper); thing != "" && !many {
			advice.Text = "the graph of all steps is kept through " + thing + ": detach() it in each step"
		}
	}
	advice.Line = line
}

// layers counts the stacks that have at least a twentieth of the growth of some sites; 0 if none of
// them is an activation. The scalar of a loss is no layer.
func (a *adviser) layers(sites []int) (n int) {
	total, activations := 0.0, 0
	for _, i := range sites {
		total += a.verdicts[i].Rate.Value
	}
	for _, i := range sites {
		if v := &a.verdicts[i]; v.Rate.Value >= total/20 {
			n++
			if v.Object == objectActivation {
				activations++
			}
		}
	}
	if activations == 0 {
		return 0
	}
	return n
}

// withoutGradients reports whether the stack of a site shows that it runs in a function which
// torch.no_grad() or torch.inference_mode() decorates.
func (a *adviser) withoutGradients(sites []int) bool {
	return slices.ContainsFunc(sites, func(i int) bool {
		return slices.ContainsFunc(a.stack(&a.s.Sites[i]), func(f callstack.Frame) bool {
			return f.Python && method(&f) == "decorate_context" && path.Base(f.File) == "_contextlib.py"
		})
	})
}
