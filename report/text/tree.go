// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// viewTitle writes the title of a view, and its interval.
func viewTitle(p *page, s *ledger.Snapshot, n *notes, o report.Options) {
	title(p, s, n)
	if o.Since != nil {
		from := "begin"
		if o.Since.End > s.Begin {
			from = format.Span(o.Since.End - s.Begin)
		}
		p.text(plain, 0, fmt.Sprintf("From %s to %s of the session", from, format.Span(s.End-s.Begin)))
	}
}

// leastShare is the least share of the whole with which a branch is shown.
const leastShare = 0.01

// WriteTree writes GPU memory as a tree of calls from main on: the largest branches, and of each
// chain of calls its beginning, the user's own line and its end.
func WriteTree(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	viewTitle(p, s, n, o)
	root := report.CallTree(s, st, o)
	p.line(plain, 0, "")
	t := treePage{page: p, total: root.Bytes, top: o.Limit()}
	what, sum := "GPU memory by call tree:", format.SignedBytes(root.Bytes)
	if o.Since != nil {
		what, sum = "Change of GPU memory by call tree:", format.Difference(root.Bytes)
		t.total, t.change = int64(root.Changed), true
	}
	p.text(bold, 0, format.Join(what, sum, n.mark(report.AtTotals), n.mark(report.AtStacks)))
	p.line(plain, 0, "")
	t.children(root, 0)
	footnotes(p, n)
	return p.writeTo(w)
}

type treePage struct {
	*page
	total  int64
	top    int
	change bool // figures are changes
}

func (t *treePage) share(bytes int64) float64 { return float64(bytes) / math.Max(float64(t.total), 1) }

// small reports whether a branch has too little to be shown.
func (t *treePage) small(b *report.Branch) bool {
	if t.change {
		return t.share(int64(b.Changed)) < leastShare
	}
	return b.Bytes > 0 && t.share(b.Bytes) < leastShare
}

func (t *treePage) children(b *report.Branch, depth int) {
	shown, rest, restBytes := 0, 0, int64(0)
	least := 1
	if depth == 0 { // show a small program beside a large context
		least = min(5, t.top)
	}
	for _, c := range b.Children {
		if shown == t.top || t.small(c) && shown >= least {
			rest++
			restBytes += c.Bytes
			continue
		}
		shown++
		t.chain(c, depth)
	}
	if rest > 0 {
		t.row(dim, restBytes, depth, callstack.Frame{Function: format.Count(uint64(rest), "more branch"), Mark: true})
	}
}

// chain writes a branch and its only descendants up to the next fork. Between the user's own lines
// only the first and the last frame are shown, and one between them.
func (t *treePage) chain(b *report.Branch, depth int) {
	t.row(plain, b.Bytes, depth, b.Frame)
	skipped, last := 0, b
	for len(b.Children) == 1 && b.Children[0].Bytes == b.Bytes {
		b = b.Children[0]
		if len(b.Children) == 1 && b.Children[0].Bytes == b.Bytes && !b.User {
			skipped, last = skipped+1, b
			continue
		}
		depth++
		switch {
		case skipped == 1:
			t.row(dim, last.Bytes, depth, last.Frame)
			depth++
		case skipped > 1:
			t.line(dim, 0, t.indented("", depth)+"… "+format.Count(uint64(skipped), "frame"))
		}
		skipped = 0
		s := plain
		if b.User {
			s = bold
		}
		t.row(s, b.Bytes, depth, b.Frame)
	}
	t.children(b, depth+1)
}

const treeFigures = 10 + 7 // columns: bytes, share

// beside reports whether frames fit beside the figures.
func (t *treePage) beside() bool { return t.width >= treeFigures+narrowFrame }

func (t *treePage) indented(figures string, depth int) string {
	if !t.beside() {
		return format.Pad(figures, 2*min(depth, max(t.width-16, 0)/2))
	}
	return format.Pad(figures, treeFigures+2+2*min(depth, max(t.width-treeFigures-30, 0)/2))
}

func (t *treePage) row(s Style, bytes int64, depth int, f callstack.Frame) {
	amount := format.SignedBytes(bytes)
	if t.change {
		amount = format.Difference(bytes)
	}
	figures := format.Pad(amount, -10) + format.Pad(fmt.Sprintf("%.1f%%", 100*t.share(bytes)), -7)
	if !t.beside() {
		t.line(s, 0, t.indented("", depth)+format.Join(strings.Fields(figures)...))
		figures, depth = "", depth+1
	}
	text := t.indented(figures, depth)
	t.line(s, 0, text+frames.Text(&f, t.width-format.Width(text)))
}
