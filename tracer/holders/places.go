// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// place is what a word of the process's memory is a part of. Only one of its fields is set, and class
// with start.
type place struct {
	stack  bool
	object uint64 // of Python
	file   string // whose variable it is: "libcupy.so"
	start  uint64 // of an object of C or C++
	class  *class // of start, or nil
}

// placeOf finds what a word is a part of.
func (s *stackWalk) placeOf(at uint64) (p place) {
	r, ok := regionAt(s.py.regions, at)
	if !ok || !r.own() {
		return p
	}
	for _, stack := range s.stacks {
		if at >= stack.start && at < stack.end {
			return place{stack: true}
		}
	}
	if r.Path == "[stack]" {
		return p // not in use
	}
	if r.file() {
		return place{file: libraryName(r)}
	}
	before, _ := regionAt(s.py.regions, r.Start-1)
	process, live := s.py.mem.(*Process)
	if live && r.Path == "" && before.file() && before.Writable && at < process.variablesEnd(before) {
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

func libraryName(r Region) string { return cut60(untrusted.Clean(path.Base(r.Path))) }

// isBooks reports whether a library keeps books of all addresses: CUDA's own, and PyTorch's allocator.
// That says nothing of who keeps the memory.
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
		return "autograd graph that Python does not hold", false
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
