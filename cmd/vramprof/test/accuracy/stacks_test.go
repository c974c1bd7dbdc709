// SPDX-License-Identifier: Apache-2.0

package accuracy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/symbolize/callstack"
)

// place is a frame as noted by the program itself.
type place struct {
	function string // what the name must contain: "walk_12", "Trainer.step"
	file     string // base name
	line     int    // 0: any
	maybe    bool   // may be missing: a call in tail position
	inlined  bool   // may be inlined into its caller
	foreign  bool   // no frame, but other code's frames may be here
	root     bool   // the outermost frame
	python   bool   // function is the whole name, and other frames may be anywhere in between
}

// verdict is the result of comparing one of vramprof's stacks with the truth.
type verdict int

const (
	right     verdict = iota
	cut               // right, and marked as truncated
	unnamed           // right, except for frames marked as unreadable
	noLine            // right, but a line is unknown
	twice             // right, but a function appears twice: the compiler split off a part and the debug information calls both the same
	cutUnsaid         // right, but truncated without a mark
	wrongLine         // the functions are right
	noInline          // an inlined frame is missing
	wrong             // a frame too many, or one is missing
	none              // no stack at all
	verdicts
)

var verdictWords = [verdicts]string{"right", "truncated, marked", "with an unreadable frame, marked", "line not known", "function twice after the compiler split it", "truncated, not marked", "wrong line", "inlined frame missing", "wrong frame", "no stack"}

// score counts stacks by verdict.
type score struct {
	counts   [verdicts]int
	examples []string // of stacks that are not right
}

func (s *score) total() (n int) {
	for _, c := range s.counts {
		n += c
	}
	return n
}

// bad counts wrong stacks without a mark; vramprof itself counts missing stacks.
func (s *score) bad() (n int) {
	for v := cutUnsaid; v < none; v++ {
		n += s.counts[v]
	}
	return n
}

func (s *score) String() string {
	parts := []string{fmt.Sprintf("%d wrong", s.bad())}
	for v, n := range s.counts {
		if n > 0 && verdict(v) != right {
			parts = append(parts, fmt.Sprintf("%s %s", thousands(n), verdictWords[v]))
		}
	}
	return strings.Join(parts, ", ")
}

func (s *score) add(v verdict, truth []place, stack []callstack.Frame) {
	s.counts[v]++
	if v != right && s.counts[v] <= 3 {
		s.examples = append(s.examples, fmt.Sprintf("%s:\n%s", verdictWords[v], sideBySide(truth, stack)))
	}
}

// merge adds another score.
func (s *score) merge(o *score) {
	for v, n := range o.counts {
		s.counts[v] += n
	}
	s.examples = append(s.examples, o.examples...)
}

func sideBySide(truth []place, stack []callstack.Frame) string {
	var b strings.Builder
	for _, p := range truth {
		flags := ""
		for word, is := range map[string]bool{" maybe": p.maybe, " inlined": p.inlined, " foreign": p.foreign, " root": p.root} {
			if is {
				flags += word
			}
		}
		fmt.Fprintf(&b, "\tprogram  %s %s:%d%s\n", p.function, p.file, p.line, flags)
	}
	for _, f := range stack {
		library := ""
		if f.Mapping != nil {
			library = " in " + filepath.Base(f.Mapping.Path)
		}
		fmt.Fprintf(&b, "\tvramprof %s %s:%d%s%s\n", f.Function, filepath.Base(f.File), f.Line, library, map[bool]string{true: " inlined"}[f.Inlined])
	}
	return b.String()
}

// compare judges a stack, leaf first. own reports whether a frame is the program's own: all of
// these must be in the truth, in its order.
func compare(truth []place, stack []callstack.Frame, own func(*callstack.Frame) bool) verdict {
	if len(stack) == 0 {
		return none
	}
	// An unreadable native frame hides no Python frame.
	python := len(truth) > 0 && truth[0].python
	remark := func(f callstack.Frame) bool {
		const unknown = "[code in no file]"
		return f.Mark && f.Function != unknown || f.Function == unknown && !python
	}
	said := slices.ContainsFunc(stack, remark)
	worst, between, unread, left := right, false, 0, truth
	note := func(v verdict) { worst = max(worst, v) }
	for i := range stack {
		f := &stack[i]
		if remark(*f) {
			unread++
			continue
		}
		if !own(f) {
			between = between || !f.Inlined && i > 0 // frame 0 is CUDA's function itself
			continue
		}
		if !f.Python && i > 0 && stack[i-1].Inlined && nameOf(&stack[i-1]) == nameOf(f) && !slices.ContainsFunc(left, func(p place) bool { return p.isFunction(f) && p.line == f.Line }) {
			note(twice)
			continue
		}
		at := slices.IndexFunc(left, func(p place) bool { return p.isFunction(f) && (p.line == 0 || p.line == f.Line) })
		if at < 0 {
			if at = slices.IndexFunc(left, func(p place) bool { return p.isFunction(f) }); at < 0 {
				return wrong
			}
			if f.Line == 0 {
				note(noLine)
			} else {
				note(wrongLine)
			}
		}
		foreign := false
		for _, p := range left[:at] {
			switch {
			case p.foreign:
				foreign = true
			case p.maybe:
			case p.inlined:
				note(noInline)
			case unread > 0:
				unread--
				note(unnamed)
			default:
				return wrong
			}
		}
		if between && !foreign && !f.Python {
			return wrong
		}
		between = false
		left = left[at+1:]
	}
	left = slices.DeleteFunc(slices.Clone(left), func(p place) bool { return p.maybe || p.foreign })
	if unread == 0 { // marks are inside the stack
		said = false
	}
	switch {
	case len(left) == 0 && !said:
		return worst
	case worst > twice:
		return worst
	case said:
		return cut
	}
	return cutUnsaid
}

func (p *place) isFunction(f *callstack.Frame) bool {
	if p.python {
		return f.Function == p.function && filepath.Base(f.File) == p.file
	}
	return !p.foreign && (hasWord(f.Function, p.function) || strings.Contains(f.Function, "operator()")) && (p.file == "" || filepath.Base(f.File) == p.file || f.File == "")
}

// nameOf returns the name without parameters.
func nameOf(f *callstack.Frame) string {
	name, _, _ := strings.Cut(f.Function, "(")
	return name
}

// hasWord reports whether a name contains word as a whole word: "V_12" is in "V_12::go(Walk&)", not
// in "V_121::go(Walk&)".
func hasWord(name, word string) bool {
	at := strings.Index(name, word)
	if at < 0 {
		return false
	}
	end := at + len(word)
	return end == len(name) || name[end] < '0' || name[end] > '9'
}
