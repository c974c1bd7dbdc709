// SPDX-License-Identifier: Apache-2.0

// Package retention names the ways in which a path of references keeps memory alive: through an
// autograd graph, a traceback, a cache. Advice depends on them, so they travel beside the path,
// which is a text for people.
package retention

import "strings"

// Set is what a walk knows of the ways in which a path keeps memory.
type Set uint16

const (
	Known          Set = 1 << iota // the walk looked for all others; unset in captures of older versions
	Graph                          // the autograd graph of a tensor
	EndedByError                   // a variable of a function that an error ended
	LastError                      // sys.last_value and the like: the last uncaught error
	Traceback                      // the traceback of an exception
	Frame                          // a variable of a frame, generator or coroutine that does not run
	Results                        // IPython's results of past inputs
	Cache                          // functools.lru_cache
	OptimizerState                 // the state that an optimizer has of its parameters
	ParamGroups                    // the parameters of an optimizer
	Gradient                       // the gradient of what the path leads to
	WeakKeys                       // a value of a weakref.WeakKeyDictionary
	Ended                          // a task that has ended, or a frame of a function that has
	OwnKeys                        // a value of a weakref.WeakKeyDictionary, and nothing but the value keeps its key
	Cycle                          // objects that only hold each other

	all = 1<<iota - 1
)

// Has reports whether the set has all of want.
func (s Set) Has(want Set) bool { return s&want == want }

// Read returns a set as a capture has it, with the path beside it. A capture of an older version
// has no set; what its path contains stands for it.
func Read(s Set, path string) Set {
	if !s.Has(Known) {
		return ofPath(path)
	}
	return s & all
}

// written is how paths of older versions wrote each way.
var written = []struct {
	way  Set
	text string
}{
	{Graph, "(autograd graph)"},
	{EndedByError, ", which an error ended"},
	{LastError, "sys.last_"},
	{Traceback, "__traceback__"},
	{Frame, ".<local "},
	{Results, "Out["},
	{Cache, ".cache[*]"},
	{OptimizerState, ".state[*]"},
	{ParamGroups, ".param_groups[*]"},
	{Gradient, ".grad "}, // also at the end
	{Cycle, "cycle of "},
}

// ofPath returns the set of a path that an older version wrote: "losses[*] (autograd graph)".
func ofPath(path string) Set {
	set := Known
	for _, w := range written {
		if strings.Contains(path+" ", w.text) {
			set |= w.way
		}
	}
	return set
}
