// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Pattern is a problem that PyTorch's guides describe.
type Pattern string

const (
	GraphKept     Pattern = "graph-kept"    // a loss or an output is kept with the graph behind it
	NoGrad        Pattern = "no-grad"       // likewise, where nothing computes gradients
	BackwardKept  Pattern = "retain-graph"  // results of a backward pass are kept
	Container     Pattern = "container"     // a list, a dictionary, a cache in Python only grows
	ZeroGrad      Pattern = "zero-grad"     // gradients live across steps
	Fragmentation Pattern = "fragmentation" // reserved, but in pieces
	PinnedGrowth  Pattern = "pinned-growth"
	Checkpointing Pattern = "checkpointing" // activations fill the GPU
	EmptyCache    Pattern = "empty-cache"   // a cache keeps what another process needs
)

// Advice is what to do about one pattern in one process. Text and Evidence are one line each,
// without control characters.
type Advice struct {
	Pattern  Pattern
	Process  int // index into Snapshot.Processes
	Device   int32
	Text     string
	Evidence string
	Line     callstack.Frame // where to look; without a Function no single line is known
	Sites    []int           // indices into Snapshot.Sites of the sites that are the evidence, if any
}

// Advise searches for patterns in a snapshot and its verdicts, which Judge returned. Advice is
// ordered by process, then as the constants above.
func Advise(s *ledger.Snapshot, st callstack.Stacks, verdicts []Verdict) []Advice {
	a := adviser{judge: newJudge(s, st), verdicts: verdicts, byProcess: make([][]int, len(s.Processes)), largest: map[int]uint64{}, users: map[string][]int{}, caches: fragmentation.Caches(s, st)}
	for i := range s.Sites {
		p := s.Sites[i].Process
		a.byProcess[p] = append(a.byProcess[p], i)
	}
	for i := range s.Failures {
		if f := &s.Failures[i]; f.Result == outOfMemory {
			a.largest[f.Process] = max(a.largest[f.Process], f.LastBytes)
		}
	}
	for i := range s.Balances {
		a.users[s.Balances[i].UUID] = append(a.users[s.Balances[i].UUID], i)
	}
	for p := range s.Processes {
		a.process(p)
	}
	return a.list
}

type adviser struct {
	*judge
	verdicts []Verdict
	list     []Advice

	byProcess [][]int          // sites by process
	largest   map[int]uint64   // largest failed allocation of each process
	users     map[string][]int // balances by GPU
	caches    []fragmentation.Cache
}

func (a *adviser) say(p Pattern, process int, device int32, sites []int, text, evidence string) *Advice {
	a.list = append(a.list, Advice{Pattern: p, Process: process, Device: device, Text: text, Evidence: evidence, Sites: sites})
	return &a.list[len(a.list)-1]
}

func (a *adviser) process(p int) {
	var devices []int32
	backward := false
	for _, i := range a.byProcess[p] {
		x := &a.s.Sites[i]
		if !slices.Contains(devices, x.Device) {
			devices = append(devices, x.Device)
		}
		backward = backward || isBackward(a.verdicts[i].Object)
	}
	slices.Sort(devices)
	for _, d := range devices {
		a.graphs(p, d, backward)
		a.containers(p, d)
		a.zeroGrad(p, d)
		a.fragmentation(p, d)
	}
	a.pinned(p)
	for _, d := range devices {
		a.checkpointing(p, d)
		a.emptyCache(p, d)
	}
}

func isBackward(object Object) bool { return object == objectBackward || object == objectGradient }

// sites returns the sites of a device for which keep returns true.
func (a *adviser) sites(p int, device int32, keep func(x *ledger.Site, v *Verdict) bool) (list []int) {
	for _, i := range a.byProcess[p] {
		if x := &a.s.Sites[i]; x.Device == device && keep(x, &a.verdicts[i]) {
			list = append(list, i)
		}
	}
	return list
}

// at returns word and "train.py:42 step", or nothing without a line.
func at(word string, line callstack.Frame) string {
	if line.Function == "" {
		return ""
	}
	front, back := frames.Parts(&line)
	return strings.TrimRight(word+front+" "+back, " ")
}

// common returns the innermost line of the user's code through which at least two thirds of the
// growth of some sites come, and its caller.
func (a *adviser) common(sites []int) (line, caller callstack.Frame) {
	paths, weights, total := make([][]callstack.Frame, len(sites)), make([]float64, len(sites)), 0.0
	for k, i := range sites {
		stack := a.stack(&a.s.Sites[i])
		for n := len(stack) - 1; n >= 0; n-- {
			if f := &stack[n]; f.Python && frames.IsUser(f) && path.Base(f.File) != "runpy.py" { // outermost first
				paths[k] = append(paths[k], callstack.Frame{Function: f.Function, File: f.File, Line: f.Line, Python: true})
			}
		}
		weights[k] = a.verdicts[i].Rate.Value
		total += weights[k]
	}
	for depth := 0; ; depth++ {
		sums := map[callstack.Frame]float64{}
		for k, p := range paths {
			if depth < len(p) {
				sums[p[depth]] += weights[k]
			}
		}
		best := slices.IndexFunc(paths, func(p []callstack.Frame) bool {
			return depth < len(p) && sums[p[depth]]*3 >= total*2
		})
		if best < 0 || total == 0 {
			return line, caller
		}
		line, caller = paths[best][depth], line
		for k := range paths {
			if depth < len(paths[k]) && paths[k][depth] != line {
				paths[k] = nil // went another way
			}
		}
	}
}

// zeroGrad detects gradients that survive steps: zero_grad() is not called, or keeps them.
func (a *adviser) zeroGrad(p int, device int32) {
	kept := uint64(0)
	list := a.sites(p, device, func(x *ledger.Site, v *Verdict) bool {
		if !isBackward(v.Object) || v.Class >= Growing || x.Kind != ledger.Tensor {
			return false
		}
		w := newSeries(x, a.lives[p])
		n := len(w.w)
		if n < 4 || w.lastAlloc() < n-2 {
			return false
		}
		first, all := w.sum(0, max(n/4, 1)), w.sum(0, n)
		if all.windows == 0 || first.bytes < 0.8*all.bytes || first.bytes < 1<<20 {
			return false
		}
		kept += uint64(first.bytes)
		return true
	})
	if len(list) > 0 {
		a.say(ZeroGrad, p, device, list, "gradients live from step to step: call optimizer.zero_grad() in each, without set_to_none=False",
			format.Bytes(kept)+" of the first backward passes were never freed, while further ones ran")
	}
}

// pinned detects growth of page-locked host memory.
func (a *adviser) pinned(p int) {
	var list []int
	for _, i := range a.byProcess[p] {
		if x := &a.s.Sites[i]; x.Kind.OnHost() && a.verdicts[i].Class >= Growing {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(i, k int) int {
		return cmp.Compare(a.verdicts[k].Rate.Value, a.verdicts[i].Rate.Value)
	})
	v := &a.verdicts[list[0]]
	advice := a.say(PinnedGrowth, p, a.s.Sites[list[0]].Device, list,
		"page-locked memory of the host grows: fill one pinned buffer again and again, and keep no result of pin_memory()",
		format.Count(uint64(len(list)), "stack")+" of page-locked memory, the first: "+v.Evidence)
	if v.User {
		advice.Line = v.Line
	}
}
