// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"regexp"
	"sync"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Mine returns the same stacks with each frame marked: what re matches by its source file, its
// mapped file or its function is the user's own code, and nothing else is. With a nil re it returns
// st itself. Any goroutine may use the result if that holds for st.
func Mine(st callstack.Stacks, re *regexp.Regexp) callstack.Stacks {
	if re == nil || st == nil {
		return st
	}
	return &mine{st: st, re: re, stacks: map[uint64]marked{}, known: map[codeKey]callstack.Whose{}}
}

// MarkMine marks the frames of one stack, in place, as Mine does. With a nil re it does nothing.
func MarkMine(list []callstack.Frame, re *regexp.Regexp) {
	if re == nil {
		return
	}
	for i := range list {
		list[i].Whose = whose(&list[i], re)
	}
}

func whose(f *callstack.Frame, re *regexp.Regexp) callstack.Whose {
	if !f.Mark && (re.MatchString(f.Function) || f.File != "" && re.MatchString(f.File) || f.Mapping != nil && re.MatchString(f.Mapping.Path)) {
		return callstack.Mine
	}
	return callstack.NotMine
}

// Limits of what mine remembers, in frames and in functions: about 100 MB in all.
const maxMarked, maxWhose = 1 << 19, 1 << 18

type mine struct {
	st callstack.Stacks
	re *regexp.Regexp

	mu     sync.Mutex
	stacks map[uint64]marked
	frames int // in stacks
	known  map[codeKey]callstack.Whose
}

// marked is a stack with its marks, and the first frame of the one that it was made of.
type marked struct {
	of   *callstack.Frame
	list []callstack.Frame
}

type codeKey struct {
	function, file string
	mapping        *callstack.Mapping
}

func (m *mine) Stack(id uint64) []callstack.Frame {
	list := m.st.Stack(id)
	if len(list) == 0 {
		return list
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if x, ok := m.stacks[id]; ok && x.of == &list[0] {
		return x.list
	}
	if m.frames += len(list); m.frames > maxMarked {
		clear(m.stacks)
		m.frames = len(list)
	}
	if len(m.known) > maxWhose {
		clear(m.known)
	}
	out := append([]callstack.Frame(nil), list...)
	for i := range out {
		f := &out[i]
		key := codeKey{f.Function, f.File, f.Mapping}
		w, ok := m.known[key]
		if !ok {
			w = whose(f, m.re)
			m.known[key] = w
		}
		f.Whose = w
	}
	m.stacks[id] = marked{&list[0], out}
	return out
}
