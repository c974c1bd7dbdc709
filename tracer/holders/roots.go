// SPDX-License-Identifier: Apache-2.0

package holders

import "strings"

// Costs of roots. What lasts is cheaper than what passes: the program's modules, then the variables of its
// functions, the outermost first, then libraries, then what a function is working with.
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

// enterRoots enters the modules and the variables of all frames.
func (s *search) enterRoots(live Memory) (threads, broken int) {
	for _, interp := range s.py.interps {
		s.enterModules(s.py.u64(interp + s.py.l.modulesField))
		chains, b := s.py.chains(interp, live)
		broken += b
		threads += len(s.py.threads(interp))
		depths := depthsOf(chains)
		for _, chain := range chains {
			for _, f := range chain {
				s.enterFrame(f, depths[f.code])
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
func (s *search) enterModules(modules uint64) {
	type module struct {
		name      string
		dict      uint64
		cost      int
		installed bool
	}
	var found []module
	s.py.eachItem(modules, func(key, value uint64) {
		t := s.py.typeOf(value)
		if t == nil || t.kind != kindModule || len(found) > 1<<17 {
			return
		}
		name, dict := s.py.str(key), s.py.u64(value+moduleDict)
		s.modules[value], s.modules[dict] = true, true
		m := module{name: name, dict: dict}
		m.cost, m.installed = s.costOfModule(name, dict)
		found = append(found, m)
		s.libraries[name] = m.installed
	})
	for _, m := range found {
		s.root(m.dict, Root{Kind: RootModule, Name: s.readable(m.name), own: m.cost < costLibrary}, stepRoot, 0, m.cost)
	}
}

// costOfModule makes a program's own modules cheap, and libraries dear. Packages are installed beside
// Python's own.
func (s *search) costOfModule(name string, dict uint64) (cost int, installed bool) {
	switch {
	case name == "__main__":
		return costMain, false
	case name == "torch" || strings.HasPrefix(name, "torch."):
		return costTorch, true
	}
	cost = costLibrary
	s.py.eachItem(dict, func(key, value uint64) {
		if cost == costLibrary && s.py.str(key) == "__file__" {
			file := s.py.str(value)
			installed = isInstalled(file)
			if !isLibrary(file) {
				cost = costProgram
			}
		}
	})
	return cost, installed
}

// enterFrame enters the variables of a function that runs.
func (s *search) enterFrame(f *frame, depth int) {
	function, file := f.place()
	r := Root{Kind: RootLocal, Function: s.readable(function), File: s.readable(file), Line: int(f.line), Now: f.now, own: !f.library}
	if s.hideNames {
		r.Now = 0
	}
	cost := costLocal
	if f.library {
		cost = costOther
	}
	cost += min(depth*costInner, costInnermost)
	for _, v := range f.variables {
		at, far := r, cost+s.direct(v.value)
		if t := s.py.typeOf(v.value); t != nil {
			at.Class = t.class()
		}
		if v.name == 0 {
			at.Kind, far = RootTemporary, far+costTemporary
			if v.doubtful {
				far = costDoubtful
			}
		} else {
			at.Name = s.readable(s.py.str(v.name))
		}
		s.root(v.value, at, stepRoot, 0, far)
	}
	if !s.modules[f.globals] {
		at := r
		at.Kind = RootGlobals
		s.root(f.globals, at, stepDict, 0, costOther)
	}
	if f.names != 0 && f.names != f.globals {
		s.root(f.names, r, stepDict, 0, costNames)
	}
}
