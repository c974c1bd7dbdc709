// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Pattern is a problem that PyTorch's guides describe.
type Pattern string

const (
	GraphKept     Pattern = "graph-kept"    // a loss or an output is kept with the graph behind it
	NoGrad        Pattern = "no-grad"       // the same, where nothing computes gradients
	BackwardKept  Pattern = "retain-graph"  // results of a backward pass are kept
	Container     Pattern = "container"     // a list, a dictionary, a cache in Python only grows
	ZeroGrad      Pattern = "zero-grad"     // gradients live across steps
	Fragmentation Pattern = "fragmentation" // reserved, but in pieces
	Streams       Pattern = "streams"       // free memory that only side streams can use
	Pools         Pattern = "pools"         // free memory that only CUDA graphs or MemPools can use
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
	Bytes    uint64          // that it is about: live in what leaks, unused, or at the peak
	Line     callstack.Frame // where to look; without a Function no single line is known
	Sites    []int           // indices into Snapshot.Sites of the sites that are the evidence, if any
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
	bytes := uint64(0)
	for _, i := range sites {
		bytes += a.s.Sites[i].LiveBytes
	}
	a.list = append(a.list, Advice{Pattern: p, Process: process, Device: device, Text: text, Evidence: evidence, Bytes: bytes, Sites: sites})
	return &a.list[len(a.list)-1]
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
