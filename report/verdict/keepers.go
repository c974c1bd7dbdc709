// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/retention"
)

const (
	// leastBetween is the least time between walks that show growth, ns.
	leastBetween = uint64(time.Second)
	// mostFound is the share of the live bytes of sites that must have a known holder before
	// holders disprove growth.
	mostFound = 0.9
	// leastCovered is the share of the time in which a process allocates that walks must cover; at
	// most half of the rest may be after the latest.
	leastCovered = 0.5
)

// keepers is what two walks of a process found: the first, and the latest.
type keepers struct {
	latest  *ledger.Walked
	grown   map[int]ledger.HeldGrowth // by index in latest.Held
	between uint64                    // ns
}

// keepersOf returns nil without two walks that tell something.
func (j *judge) keepersOf(process int) *keepers {
	if k, known := j.keepers[process]; known {
		return k
	}
	var k *keepers
	first, latest := j.s.FirstWalk(process), j.s.LatestWalk(process)
	if first != nil && latest != nil && latest.Time >= first.Time+leastBetween {
		k = &keepers{latest: latest, grown: map[int]ledger.HeldGrowth{}, between: latest.Time - first.Time}
		for _, g := range ledger.Grown(first.Held, latest.Held) {
			k.grown[g.Index] = g
		}
	}
	j.keepers[process] = k
	return k
}

// covers reports whether the walks cover most of a time.
func (k *keepers) covers(j *judge, l life) bool {
	life := float64(l.end - l.begin)
	late := float64(j.s.Begin) + float64(l.end) - float64(k.latest.Time)
	return float64(k.between) >= leastCovered*life && late <= (1-leastCovered)/2*life
}

// kept is what holders keep of some sites.
type kept struct {
	bytes, found, grown uint64 // live bytes of the sites; those with a holder in Python; those whose holder has grown
	best                int    // index of the holder of most bytes; -1: none
}

func (j *judge) keptOf(k *keepers, sites []int) kept {
	sum := kept{best: -1}
	parts := map[int]uint64{}
	for _, i := range sites {
		sum.bytes += j.s.Sites[i].LiveBytes
		for _, h := range j.s.Sites[i].Holders {
			if h.Holder < len(k.latest.Held) && k.latest.Held[h.Holder].Found {
				sum.found += h.Bytes
				parts[h.Holder] += h.Bytes
				if k.grown[h.Holder].Bytes > 0 {
					sum.grown += h.Bytes
				}
			}
		}
	}
	for i, n := range parts {
		if sum.best < 0 || n > parts[sum.best] || n == parts[sum.best] && i < sum.best {
			sum.best = i
		}
	}
	return sum
}

// hearHolders adds to a verdict how much the holder of most of the memory grew. Memory whose
// holders are known, and did not grow while walks covered most of the time, is not called a leak:
// its survivors took the place of others. Growth of a holder alone proves no leak: caches grow,
// too.
func (j *judge) hearHolders(process int, sites []int, v *Verdict) {
	k := j.keepersOf(process)
	if k == nil || v.Class < Growing {
		return
	}
	sum := j.keptOf(k, sites)
	if sum.best < 0 || sum.bytes == 0 {
		return
	}
	between := format.Span(k.between)
	switch g := k.grown[sum.best]; {
	case g.Entries > 0:
		v.Evidence += ", what keeps most of it grew by " + format.Count(uint64(g.Entries), "entry") + " in " + between
	case g.Bytes > 0:
		v.Evidence += ", what keeps most of it grew by " + format.Bytes(uint64(g.Bytes)) + " in " + between
	case v.Class == Leaking && k.covers(j, v.life) && sum.grown == 0 && float64(sum.found) >= mostFound*float64(sum.bytes):
		v.Class, v.UntilFull = Growing, 0
		v.Evidence = "nothing that keeps it grew in " + between + ", " + v.Evidence
	}
}

// containers gives the advice on containers in Python that only grow and keep memory that leaks.
func (a *adviser) containers(p int, device int32) {
	k := a.keepersOf(p)
	if k == nil {
		return
	}
	leaking := a.sites(p, device, func(x *ledger.Site, v *Verdict) bool { return v.Class == Leaking && len(x.Holders) > 0 })
	byHolder := map[int][]int{}
	for _, i := range leaking {
		if sum := a.keptOf(k, []int{i}); sum.best >= 0 && 2*sum.grown >= sum.bytes && k.grown[sum.best].Bytes > 0 {
			byHolder[sum.best] = append(byHolder[sum.best], i)
		}
	}
	for h := range k.latest.Held {
		sites := byHolder[h]
		held := &k.latest.Held[h]
		thing, many := thingOf(&held.Holder)
		// The graph of a forward pass is advice of its own: see graphs. A graph that a single
		// tensor keeps is not.
		chain := held.Retention.Has(retention.Graph) && thing != "" && !many && !a.has(GraphKept, NoGrad, sites)
		if len(sites) > 0 && (chain || !held.Retention.Has(retention.Graph)) {
			g := k.grown[h]
			evidence := held.Path + " grew by " + format.Bytes(uint64(g.Bytes))
			if g.Entries > 0 {
				evidence += " and " + format.Count(uint64(g.Entries), "entry")
			}
			evidence += " in " + format.Span(k.between)
			text := Remedy(&held.Holder)
			if view := viewText(k.latest, held); view != "" {
				text = view
			}
			a.say(Container, p, device, sites, text, evidence)
		}
	}
}

// viewText returns what to do about a holder most of whose storages are used in small part, as the
// walk proved; "" if they are not.
func viewText(w *ledger.Walked, h *ledger.Held) string {
	for i := range w.Waste {
		if x := &w.Waste[i]; x.Kind == wasteViews && x.Path == h.Path && x.Device == h.Device && 2*x.Storages > h.Storages {
			return WasteText(x)
		}
	}
	return ""
}

// Kinds of ledger.Waste, as package holders names them.
const (
	wasteViews  = "views"
	wasteFrozen = "frozen"
	wasteGone   = "gone"
	wasteEnded  = "ended"
	wasteCopies = "copies"
)

// IsCopies reports whether a line of waste only says that models are equal, which is no waste by
// itself.
func IsCopies(x *ledger.Waste) bool { return x.Kind == wasteCopies }

// WasteText returns why memory could be freed and how, as one sentence without a full stop.
func WasteText(x *ledger.Waste) string {
	switch x.Kind {
	case wasteViews:
		times := float64(x.Whole) / float64(max(x.Whole-min(x.Bytes, x.Whole), 1))
		return fmt.Sprintf("each is a view of a storage %.0f times its size: clone() it", times)
	case wasteFrozen:
		return "gradients of parameters that require none: set their grad to None"
	case wasteEnded:
		return "a task that has ended, or the frame of a function that has, keeps it, and nothing else: drop the task or the frame once its result is used"
	case wasteCopies:
		return "models with the same names and shapes of parameters: all are needed where one is an average (EMA) or a target of the other; else drop one"
	case wasteGone:
		return "only the optimizer keeps it, of parameters that nothing else has: make a new optimizer when parameters are replaced"
	}
	return "only an error or its traceback, or a result of IPython, keeps it: see why the error was raised, or drop it (del, %reset -f out)"
}

// has reports whether advice of one of two patterns is on any of some sites.
func (a *adviser) has(p, q Pattern, sites []int) bool {
	return slices.ContainsFunc(a.list, func(x Advice) bool {
		return (x.Pattern == p || x.Pattern == q) && slices.ContainsFunc(x.Sites, func(i int) bool { return slices.Contains(sites, i) })
	})
}

// remedies are what to do about a holder that grows, by how its path keeps memory or by the class
// of the innermost container, the first that fits.
var remedies = []struct {
	class string
	way   retention.Set
	text  string
}{
	{"", retention.Graph, "the graph of what it holds is kept: keep loss.item() or output.detach() instead"},
	{"", retention.EndedByError, "an error ended the function, and the error's traceback keeps the variables of its frames until the next error: see why it failed"},
	{"", retention.LastError, "the last error keeps it until the next error: see why it was raised"},
	{"", retention.Traceback, "a kept exception keeps the variables of its frames: keep its text, or call with_traceback(None)"},
	{"", retention.Ended, "a task or a frame of a function that has ended keeps it: drop the task or the frame, and keep only what is needed of its result"},
	{"", retention.Frame, "a kept frame, generator or coroutine keeps its variables: end it, or keep only what is needed of it"},
	{"", retention.Results, "IPython keeps each result: end lines with a semicolon, or run %reset -f out"},
	{"", retention.Cache, "functools.lru_cache keeps each result: give it a maxsize, or call cache_clear()"},
	{"", retention.OptimizerState, "the optimizer keeps state of all parameters it ever got: make a new optimizer when parameters are replaced"},
	{"", retention.ParamGroups, "the optimizer keeps parameters that were replaced: make a new optimizer"},
	{"", retention.OwnKeys, "values of this WeakKeyDictionary refer to their own keys, so no entry ever goes: keep no key in its value"},
	{"", retention.WeakKeys, "entries of this WeakKeyDictionary stay as long as their keys live: see what keeps the keys"},
	{"", retention.Cycle, "these objects refer to each other, and Python's garbage collector does not free them: break the cycle, and see whether gc.disable() or gc.freeze() keeps them"},
	{"deque", 0, "the deque only grows: set maxlen if it has none"},
	{"Queue", 0, "more is put into the queue than taken from it: set maxsize"},
	{"SimpleQueue", 0, "more is put into the queue than taken from it: use a queue with maxsize"},
	{"", retention.Gradient, "a gradient stays as long as its parameter, so parameters become more: see what keeps these"},
}

// Remedy returns what to do about a holder that grows, as one sentence without a full stop.
func Remedy(h *ledger.Holder) string {
	if h.Retention.Has(retention.Graph) {
		if thing, many := thingOf(h); thing != "" && !many {
			return "the graph of all steps is kept through " + thing + ": detach() it in each step"
		}
	}
	if name, is := weakKeys(h); is {
		return "values of the WeakKeyDictionary " + name + " refer to their own keys, so no entry ever goes: keep no key in its value"
	}
	for _, r := range remedies {
		if h.Retention.Has(r.way) && (r.class == "" || r.class == h.Container) {
			return r.text
		}
	}
	thing, many := thingOf(h)
	if !many || thing == "" {
		return cmp.Or(thing, "what this path keeps") + " only grows: keep less of it, or keep tensor.cpu() or tensor.item()"
	}
	if strings.HasSuffix(thing, "_hooks") { // where PyTorch hooks are registered: "net._forward_hooks"
		return "PyTorch hooks are added to " + thing + " and never removed: call remove() of the handle that each registration returns"
	}
	return thing + " only grows: remove what is no longer needed, bound its size, or keep tensor.cpu() or tensor.item()"
}

// weakKeys returns the name of the WeakKeyDictionary that a holder is in, if its values keep their
// own keys.
func weakKeys(h *ledger.Holder) (name string, is bool) {
	thing, many := thingOf(h)
	name, is = strings.CutSuffix(thing, ".data")
	return name, is && many && h.Retention.Has(retention.WeakKeys|retention.OwnKeys)
}

// thingOf returns what a person would name of a holder, and whether that is a container of what is
// kept. Captures of older versions have the path alone.
func thingOf(h *ledger.Holder) (thing string, many bool) {
	if h.Thing != "" {
		return h.Thing, h.Many
	}
	if at := strings.LastIndex(h.Path, "[*]"); at > 0 {
		return h.Path[:at], true
	}
	return "", false
}
