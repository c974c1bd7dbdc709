// SPDX-License-Identifier: Apache-2.0

// Package apart finds the line of code that tells stacks apart. The line of a helper that allocates
// for everybody is the innermost of the user's own in all stacks, whether they leak or not. What
// differs is a caller of the helper.
package apart

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Evidence is what is known of the memory of a stack.
type Evidence uint8

const (
	Unknown Evidence = iota // too little to tell
	Leaks
	Frees // does not leak
)

// Path is the user's own lines of a stack.
type Path []Step

// Step is a line of a Path.
type Step struct {
	line
	At int // its index in the stack
}

// line identifies a line of code.
type line struct {
	function, file string
	number         int
}

func lineOf(f *callstack.Frame) line {
	l := line{frames.Name(f), f.File, f.Line}
	if l.file == "" && f.Mapping != nil {
		l.file = f.Mapping.Path
	}
	return l
}

// Of returns the own lines of a stack that frames.Visible returned: its headline, then its callers.
// A line counts once, where it is innermost, so that the depth of a recursion makes no difference.
// A stack without own code has its headline alone. A stack that is cut ends early.
func Of(list []callstack.Frame) Path {
	head := frames.Headline(list)
	p := Path{{lineOf(&list[head]), head}}
	if !frames.IsUser(&list[head]) {
		return p
	}
	seen := map[line]bool{p[0].line: true}
	for i := head + 1; i < len(list); i++ {
		if f := &list[i]; frames.IsUser(f) {
			if l := lineOf(f); !seen[l] {
				seen[l] = true
				p = append(p, Step{l, i})
			}
		}
	}
	return p
}

// Key returns what paths of equal lines have in common.
func (p Path) Key() string {
	var b strings.Builder
	for i := range p {
		fmt.Fprintf(&b, "%q %q %d\n", p[i].function, p[i].file, p[i].number)
	}
	return b.String()
}

// tree is paths that begin with the same line, merged.
type tree struct {
	child map[branch]int
	leaks []bool // by node: a stack that leaks goes through it
	frees []bool // likewise
}

type branch struct {
	node int
	line
}

// nodes returns the node of each step.
func (t *tree) nodes(p Path) []int {
	list, at := make([]int, len(p)), 0
	for i := range p {
		key := branch{at, p[i].line}
		n, ok := t.child[key]
		if !ok {
			t.leaks, t.frees = append(t.leaks, false), append(t.frees, false)
			n = len(t.leaks)
			t.child[key] = n
		}
		list[i], at = n, n
	}
	return list
}

// Heads returns for each path the index of its headline. Of what leaks it is the innermost line at
// which the stack differs from those of all that do not leak; 0, the innermost line, where none
// differs. What is not known to leak has the headline of what does if it comes by the same line,
// else the innermost. The order of paths makes no difference. It needs time in proportion to the
// number of steps.
func Heads(paths []Path, of []Evidence) []int {
	t := tree{child: map[branch]int{}}
	nodes, heads := make([][]int, len(paths)), make([]int, len(paths))
	for i, p := range paths {
		nodes[i] = t.nodes(p)
		for _, n := range nodes[i] {
			t.leaks[n-1] = t.leaks[n-1] || of[i] == Leaks
			t.frees[n-1] = t.frees[n-1] || of[i] == Frees
		}
	}
	for i := range paths {
		for k, n := range nodes[i] {
			if !t.frees[n-1] { // the first of the kind
				if t.leaks[n-1] {
					heads[i] = k
				}
				break
			}
		}
	}
	return heads
}

// Names returns for each list of calls, outermost first, the one by which it differs from all
// others: of [Sequential.forward GELU.forward] and [Sequential.forward Linear.forward]
// "GELU.forward" and "Linear.forward". Lists that are equal have one name, their last; a list that
// others continue, too. An empty list has "".
func Names(lists [][]string) []string {
	type step struct {
		node int
		name string
	}
	child, users := map[step]int{}, map[int]int{}
	nodes, ends := make([][]int, len(lists)), map[int]bool{}
	for i, list := range lists {
		at := 0
		for _, name := range list {
			n, ok := child[step{at, name}]
			if !ok {
				n = len(child) + 1
				child[step{at, name}] = n
			}
			nodes[i], at = append(nodes[i], n), n
		}
		if !ends[at] { // equal lists count once
			ends[at] = true
			for _, n := range nodes[i] {
				users[n]++
			}
		}
	}
	names := make([]string, len(lists))
	for i, list := range lists {
		for k, name := range list {
			names[i] = name
			if users[nodes[i][k]] == 1 {
				break
			}
		}
	}
	return names
}
