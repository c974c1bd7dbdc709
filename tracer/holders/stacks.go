// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/holders/peek"
)

const (
	inUse    = "in use by the running step"
	byClass  = "backward pass" // in use by the running step, as the class of an object says
	onThread = "stack of a thread"
	ofGraph  = "autograd graph that Python does not hold"

	maxReach = 1 << 14 // C and C++ objects that stacks lead to
	maxDeep  = 2       // from a stack
	maxWords = 512     // of one of these objects
)

// stackWalk finds out what the stacks of threads lead to, and what a word of memory is a part of.
type stackWalk struct {
	*search
	stacks []peek.Span     // the parts in use
	reach  map[uint64]bool // C and C++ objects, and Python's, that the stacks lead to
}

// run finds out which C and C++ objects the stacks of threads lead to.
func (s *stackWalk) run() {
	s.stacks, s.reach = s.py.LiveStacks(), map[uint64]bool{}
	var level []uint64
	for _, stack := range s.stacks {
		level = s.follow(level, stack.Start, stack.Bytes()/8)
	}
	for range maxDeep {
		var next []uint64
		for _, a := range level {
			if s.py.late() || len(s.reach) > maxReach {
				return
			}
			next = s.follow(next, a, min(s.chunk(a)/8, maxWords))
		}
		level = next
	}
}

// follow notes what some words point to, and appends what can lead further.
func (s *stackWalk) follow(level []uint64, at, words uint64) []uint64 {
	for k := range words {
		v := s.py.U64(at + 8*k)
		if !peek.Pointer(v) || s.reach[v] || len(s.reach) > maxReach {
			continue
		}
		if r, ok := s.py.Region(v); !ok || !r.Own() || r.File() {
			continue
		}
		switch c := s.cpp.classOf(v); {
		case c.is(roleTensor):
			s.reach[v] = true
			s.reach[s.py.U64(v+s.storages.torch.storage)] = true
		case c.is(roleStorage) || s.py.typeOf(v) != nil:
			s.reach[v] = true
		case s.wholeChunk(v) && (c != nil || s.chunk(v) != tcache):
			s.reach[v] = true
			level = append(level, v)
		}
	}
	return level
}

// place is what a word of the process's memory is a part of. Only one of its fields is set, and
// class with start.
type place struct {
	stack  bool
	object uint64 // of Python
	file   string // whose variable it is: "libcupy.so"
	start  uint64 // of an object of C or C++
	class  *class // of start, or nil
}

// placeOf finds what a word is a part of.
func (s *stackWalk) placeOf(at uint64) (p place) {
	r, ok := s.py.Region(at)
	if !ok || !r.Own() {
		return p
	}
	for _, stack := range s.stacks {
		if at >= stack.Start && at < stack.End {
			return place{stack: true}
		}
	}
	if r.Path == "[stack]" {
		return p // not in use
	}
	if r.File() {
		return place{file: libraryName(r)}
	}
	before, _ := s.py.Region(r.Start - 1)
	if r.Path == "" && before.File() && before.Writable && at < s.py.VariablesEnd(before) {
		return place{file: libraryName(before)}
	}
	p.start = s.blockAt(at)
	if p.object = s.objectIn(p.start, at); p.object != 0 {
		return place{object: p.object}
	}
	if p.start != 0 {
		p.class = s.cpp.classOf(p.start)
		return p
	}
	return p
}

func libraryName(r peek.Region) string { return cut60(untrusted.Clean(path.Base(r.Path))) }

// isBooks reports whether a library keeps books of all addresses: CUDA's own, and PyTorch's
// allocator. That says nothing of who keeps the memory.
func isBooks(library string) bool {
	for _, name := range []string{"libcuda.", "libcudart", "libnvidia", "libc10_cuda"} {
		if strings.HasPrefix(library, name) {
			return true
		}
	}
	return false
}

// holds returns who holds what an object of a C++ class has: "C++ object of class c10d::Reducer",
// or "" where the class says nothing, and whether it belongs to a step that runs.
func (c *class) holds() (text string, step bool) {
	if c == nil || c.is(roleTensor|roleStorage|roleMeta) {
		return "", false
	}
	name := demangle(c.name)
	switch {
	case c.is(roleNode):
		return ofGraph, false
	case strings.HasSuffix(name, "autograd::GraphTask"):
		return inUse, true
	case name == "":
		return "", false
	}
	return "C++ object of class " + cutFront60(untrusted.Clean(name)), false
}

// demangle returns the name of a class: "c10d::Reducer" of "N4c10d7ReducerE", and of what
// std::make_shared wraps around it. Arguments of templates are left out.
func demangle(name string) string {
	for _, wrapper := range []string{"St23_Sp_counted_ptr_inplaceI", "St15_Sp_counted_ptrIP", "St19_Sp_counted_deleterIP"} {
		name = strings.TrimPrefix(name, wrapper)
	}
	nested := strings.HasPrefix(name, "N")
	name = strings.TrimPrefix(name, "N")
	var parts []string
	if rest, is := strings.CutPrefix(name, "St"); is {
		name, parts = rest, append(parts, "std")
	}
	for {
		if rest, is := strings.CutPrefix(name, "12_GLOBAL__N_1"); is {
			name = rest
		}
		n := 0
		for name != "" && name[0] >= '0' && name[0] <= '9' && n < 1000 {
			n, name = 10*n+int(name[0]-'0'), name[1:]
		}
		if n == 0 || n > len(name) {
			break
		}
		parts, name = append(parts, name[:n]), name[n:]
		if !nested {
			break
		}
	}
	return strings.Join(parts, "::")
}
