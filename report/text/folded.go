// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Lines of a folded stack: of a longer one, as of a deep recursion, the middle is left out.
const mostFolded, outermostFolded = 10, 3

// foldedLine is a frame, or so many frames that are not shown.
type foldedLine struct {
	frame   *callstack.Frame
	skipped uint64
	noun    string // of what is skipped
}

// folded writes the user's own frames of a stack, its headline and its marks, and the number of
// library frames between them: "… 33 library frames, in at::_ops::relu::call".
func (p *page) folded(list []callstack.Frame, own int) {
	const indent = siteIndent + 2
	_, callee := frames.Leaf(list)
	for i, l := range foldedLines(list, own) {
		switch {
		case l.frame == nil && i == 0 && callee != "":
			p.line(dim, indent, "… "+format.Count(l.skipped, l.noun)+", in "+untrusted.Clean(frames.SimpleName(callee)))
		case l.frame == nil:
			p.line(dim, indent, "… "+format.Count(l.skipped, l.noun))
		case l.frame == &list[own]:
			p.line(plain, indent, frames.Text(l.frame, p.width-indent))
		default:
			p.line(dim, indent, frames.Text(l.frame, p.width-indent))
		}
	}
}

// foldedLines leaves out what called the program's outermost own frame where that is native code
// alone: the C library's start of programs and of threads.
func foldedLines(list []callstack.Frame, own int) (lines []foldedLine) {
	for i := 0; i < len(list); {
		from := i
		for i < len(list) && i != own && !list[i].Mark && !frames.IsUser(&list[i]) {
			i++
		}
		switch n := i - from; {
		case i == len(list) && from > 0 && !hasScript(list[from:]):
		case n > 1:
			lines = append(lines, foldedLine{skipped: uint64(n), noun: "library frame"})
		case n == 1:
			lines = append(lines, foldedLine{frame: &list[from]})
		default:
			lines = append(lines, foldedLine{frame: &list[i]})
			i++
		}
	}
	if more := len(lines) - mostFolded; more > 0 {
		from, to := mostFolded-1-outermostFolded, len(lines)-outermostFolded
		middle := foldedLine{noun: "more frame"}
		for _, l := range lines[from:to] {
			middle.skipped += max(l.skipped, 1)
		}
		rest := lines[to:]
		lines = append(append(lines[:from:from], middle), rest...)
	}
	return lines
}

// briefFrame returns a frame's line like frames.Text. Native functions have their simple name; one
// without a source file loses its library, then its begin.
func briefFrame(f callstack.Frame, width int) string {
	if f.Python || f.Mark {
		return frames.Text(&f, width)
	}
	f.Function = frames.ShortName(&f)
	front, back := frames.Parts(&f)
	if f.File != "" || format.Width(front)+1+format.Width(back) <= width {
		return frames.Text(&f, width)
	}
	return format.CutFront(front, width)
}

func hasScript(list []callstack.Frame) bool {
	return slices.ContainsFunc(list, func(f callstack.Frame) bool { return f.Python })
}

// ownLines counts the frames of a stack that are the user's own.
func ownLines(list []callstack.Frame) (n int) {
	for i := range list {
		if frames.IsUser(&list[i]) {
			n++
		}
	}
	return n
}

// callersOf returns a key of the user's own frames that called the headline, "" for none.
func callersOf(stack []callstack.Frame, own int) string {
	var b strings.Builder
	for i := own + 1; i < len(stack); i++ {
		if f := &stack[i]; frames.IsUser(f) {
			fmt.Fprintf(&b, "%q %q %d\n", f.Function, f.File, f.Line)
		}
	}
	return b.String()
}
