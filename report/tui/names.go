// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"path"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// tidy cleans a name of control characters, and of characters that terminals do not agree about how
// wide they are: they would shift what follows.
func tidy(name string) string {
	name = untrusted.Clean(name)
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	return tidied(name)
}

// tidyPath is tidy for paths, of which the end says more.
func tidyPath(file string) string {
	file = untrusted.Clean(file)
	if len(file) > maxName {
		file = "…" + strings.ToValidUTF8(file[len(file)-maxName:], "")
	}
	return tidied(file)
}

// maxName is how many bytes of a name are kept: more than a terminal is wide.
const maxName = 512

func tidied(name string) string {
	ascii := true
	for i := 0; ascii && i < len(name); i++ {
		ascii = name[i] < 0x80
	}
	if ascii || agreed(name) {
		return name
	}
	name = replace(name, func(s string) bool { return agreed(s) })
	if !agreed(name) { // characters that join
		name = replace(name, func(string) bool { return false })
	}
	return name
}

func agreed(s string) bool {
	n := format.Width(s)
	return n == ansi.StringWidth(s) && n == ansi.StringWidthWc(s)
}

// replace puts "?" in the place of each character that is not ASCII and not kept.
func replace(name string, keep func(string) bool) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 || keep(string(r)) {
			return r
		}
		return '?'
	}, name)
}

// maxStacks is how many stacks have their lines kept. Beyond it all are looked up again.
const maxStacks = 1 << 17

// stackKey is a site's stack. Without frames the called function stands for it.
type stackKey struct {
	id   uint64
	api  string
	head int // index of the headline, if it was judged; else 0
}

// lines are what a stack means for the views, as numbers of frames.
type lines struct {
	head int32   // the user's own line that it comes from
	own  []int32 // the user's own lines in it, each once, with head
	path []int32 // for the tree, outermost first: own frames, and the library function that they call
	leaf int32   // comes after path in stacks of driver allocations; -1: it is in path
	// What head called, outermost first: see frames.Below.
	below []string
}

// names keeps the lines of stacks: most stay the same from moment to moment.
type names struct {
	stacks map[stackKey]*lines
	frames []callstack.Frame
	number map[report.LineKey]int32 // of lines
	branch map[report.LineKey]int32 // of branches of the tree
}

func newNames() *names {
	return &names{stacks: map[stackKey]*lines{}, number: map[report.LineKey]int32{}, branch: map[report.LineKey]int32{}}
}

// trim forgets everything when there is too much of it: before a moment is read, not within one.
func (n *names) trim() {
	if len(n.stacks) > maxStacks || len(n.frames) > 4*maxStacks {
		*n = *newNames()
	}
}

// of returns the lines of a stack. Head is the index of its headline; 0: that of frames.Headline.
func (n *names) of(st callstack.Stacks, id uint64, api string, head int) *lines {
	key := stackKey{id: id, head: head}
	if id == 0 {
		key.api = api
	}
	if l := n.stacks[key]; l != nil {
		return l
	}
	known := id
	if st == nil {
		known = 0
	}
	list := frames.Visible(st, known, api)
	l := n.read(list, head)
	if id == 0 || len(list) != 2 || list[1].Function != frames.NoStack(known).Function { // one that is not known yet may be later
		n.stacks[key] = l
	}
	return l
}

func (n *names) read(list []callstack.Frame, head int) *lines {
	if head <= 0 || head >= len(list) {
		head = frames.Headline(list)
	}
	l := &lines{head: n.line(&list[head]), leaf: -1}
	for _, name := range frames.Below(list, head) {
		l.below = append(l.below, tidy(name))
	}
	l.own = append(l.own, l.head)
	for i := range list {
		if f := &list[i]; i != head && frames.IsUser(f) {
			if k := n.line(f); !contains(l.own, k) {
				l.own = append(l.own, k)
			}
		}
	}
	kept := report.OwnFrames(list, true)
	for i := len(kept) - 1; i >= 0; i-- {
		l.path = append(l.path, n.branchOf(&kept[i]))
	}
	if with := report.OwnFrames(list, false); len(with) > len(kept) {
		l.leaf = n.branchOf(&with[0])
	}
	return l
}

func contains(list []int32, k int32) bool {
	for _, x := range list {
		if x == k {
			return true
		}
	}
	return false
}

// line returns the number of a line of code.
func (n *names) line(f *callstack.Frame) int32 {
	return n.add(n.number, report.LineKeyOf(f), *f)
}

// branchOf returns the number of a branch: native code by function, as in report.CallTree.
func (n *names) branchOf(f *callstack.Frame) int32 {
	x := *f
	if !f.Python {
		x.Line, x.File = 0, ""
		if f.Mapping != nil {
			x.File = f.Mapping.Path
		}
	}
	key := report.LineKeyOf(&x)
	if !f.Python {
		x.File = ""
	}
	return n.add(n.branch, key, x)
}

func (n *names) add(at map[report.LineKey]int32, key report.LineKey, f callstack.Frame) int32 {
	if k, ok := at[key]; ok {
		return k
	}
	k := int32(len(n.frames))
	at[key] = k
	if f.Python && frames.IsUser(&f) {
		f.File = shortFile(f.File)
	}
	f.Function, f.File = tidy(frames.ShortName(&f)), tidyPath(f.File)
	if f.Mapping != nil {
		f.Mapping = &callstack.Mapping{Path: tidyPath(f.Mapping.Path)}
	}
	n.frames = append(n.frames, f)
	return k
}

// shortFile returns the name of a file without its folders, which Enter shows: "train.py". A
// package's own file keeps the name of the package.
func shortFile(file string) string {
	folder, base := path.Split(file)
	if base == "__init__.py" || base == "__main__.py" {
		return path.Join(path.Base(folder), base)
	}
	return base
}

// mark returns the number of a frame that is no code.
func (n *names) mark(name string) int32 {
	return n.line(&callstack.Frame{Function: name, Mark: true})
}
