// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"strings"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

// Costs of roots. What lasts is cheaper than what passes: the program's modules, then the variables
// of its functions, the outermost first, then libraries, then what a function is working with.
const (
	costMain      = 0    // variables of __main__
	costProgram   = 40   // of other modules of the program
	costLocal     = 200  // variables of functions
	costInner     = 80   // more for each function that called it: the outermost names what it has passed on
	costInnermost = 2400 // at most
	costNames     = 300
	costOther     = 900 // of functions of libraries
	costLibrary   = 1400
	costTorch     = 1600
	costTemporary = 2000 // more for a value on a function's stack
	costDoubtful  = 6000 // of what a stack may have left over
	cutDepth      = 16   // of functions whose callers are not known
)

// rootFinder enters what nothing needs to hold: modules, and the variables of functions that run.
type rootFinder struct {
	*search
	privacy
	libraries map[string]bool // packages that are installed or Python's own
}

func newRootFinder(s *search, p privacy) *rootFinder {
	return &rootFinder{search: s, privacy: p, libraries: map[string]bool{}}
}

// run enters the modules and the variables of all frames.
func (f *rootFinder) run(live peek.Memory) (threads, broken int) {
	for _, interp := range f.py.interps {
		f.enterModules(f.py.U64(interp + f.py.l.modulesField))
		chains, b := f.py.chains(interp, live)
		broken += b
		threads += len(f.py.threads(interp))
		depths := depthsOf(chains)
		for _, chain := range chains {
			for _, fr := range chain {
				f.enterFrame(fr, depths[fr.code])
			}
		}
	}
	return threads, broken
}

// depthsOf returns how many functions have called each one. A chain that was cut off while it was
// read seems to begin with an inner function: the longest one counts.
func depthsOf(chains [][]*frame) map[uint64]int {
	depths := map[uint64]int{}
	for _, chain := range chains {
		for depth, f := range chain {
			if f.cut {
				depth += cutDepth
			}
			depths[f.code] = max(depths[f.code], depth)
		}
	}
	return depths
}

// enterModules enters sys.modules, the program's own first.
func (f *rootFinder) enterModules(modules uint64) {
	type module struct {
		name      string
		dict      uint64
		cost      int
		installed bool
	}
	var found []module
	f.py.eachItem(modules, func(key, value uint64) {
		t := f.py.typeOf(value)
		if t == nil || t.kind != kindModule || len(found) > 1<<17 {
			return
		}
		name, dict := f.py.str(key), f.py.U64(value+moduleDict)
		f.modules[value], f.modules[dict] = true, true
		m := module{name: name, dict: dict}
		m.cost, m.installed = f.costOfModule(name, dict)
		found = append(found, m)
		f.libraries[name] = m.installed
	})
	for _, m := range found {
		f.root(m.dict, Root{Kind: RootModule, Name: f.readable(m.name), own: m.cost < costLibrary}, stepRoot, 0, m.cost)
	}
}

// costOfModule makes a program's own modules cheap, and libraries dear. Packages are installed
// beside Python's own.
func (f *rootFinder) costOfModule(name string, dict uint64) (cost int, installed bool) {
	switch {
	case name == "__main__":
		return costMain, false
	case name == "torch" || strings.HasPrefix(name, "torch."):
		return costTorch, true
	}
	cost = costLibrary
	f.py.eachItem(dict, func(key, value uint64) {
		if cost == costLibrary && f.py.str(key) == "__file__" {
			file := f.py.str(value)
			installed = isInstalled(file)
			if !isLibrary(file) {
				cost = costProgram
			}
		}
	})
	return cost, installed
}

// enterFrame enters the variables of a function that runs.
func (f *rootFinder) enterFrame(fr *frame, depth int) {
	function, file := fr.place()
	r := Root{Kind: RootLocal, Function: f.readable(function), File: f.readable(file), Line: int(fr.line), Now: fr.now, own: !fr.library}
	if f.hideNames {
		r.Now = 0
	}
	cost := costLocal
	if fr.library {
		cost = costOther
	}
	cost += min(depth*costInner, costInnermost)
	for _, v := range fr.variables {
		at, far := r, cost+f.direct(v.value)
		if t := f.py.typeOf(v.value); t != nil {
			at.Class = t.class()
		}
		if v.name == 0 {
			at.Kind, far = RootTemporary, far+costTemporary
			if v.doubtful {
				far = costDoubtful
			}
		} else {
			at.Name = f.readable(f.py.str(v.name))
		}
		f.root(v.value, at, stepRoot, 0, far)
	}
	if !f.modules[fr.globals] {
		at := r
		at.Kind = RootGlobals
		f.root(fr.globals, at, stepDict, 0, costOther)
	}
	if fr.names != 0 && fr.names != fr.globals {
		f.root(fr.names, r, stepDict, 0, costNames)
	}
}
