// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// viewTitle writes what is shown: of an interval, which one.
func viewTitle(p *page, s *ledger.Snapshot, n *notes, o Options) {
	title(p, s, n)
	if o.Since != nil {
		from := "begin"
		if o.Since.End > s.Begin {
			from = span(o.Since.End - s.Begin)
		}
		p.text(plain, 0, fmt.Sprintf("From %s to %s of the recording", from, span(s.End-s.Begin)))
	}
}

// branch is a frame of the call tree, and what the stacks through it hold.
type branch struct {
	frame    callstack.Frame
	bytes    int64
	changed  uint64 // how much its own bytes and those of the branches on it changed, each by its amount
	user     bool   // the headline of a stack
	children []*branch
	at       map[branchKey]*branch
}

// branchKey: frames of Python are one per line, native ones one per function.
type branchKey struct {
	name, file string
	line       int
	python     bool
}

// lineKey tells lines of code apart.
func lineKey(f *callstack.Frame) branchKey {
	return branchKey{frames.Name(f), f.File, f.Line, f.Python}
}

func (b *branch) child(f *callstack.Frame) *branch {
	key := branchKey{name: frames.Name(f), python: f.Python}
	if f.Python {
		key.file, key.line = f.File, f.Line
	} else if f.Mapping != nil {
		key.file = f.Mapping.Path
	}
	if c := b.at[key]; c != nil {
		return c
	}
	c := &branch{frame: *f, at: map[branchKey]*branch{}}
	if !f.Python {
		c.frame.Line = 0 // several lines of the function are one here
		c.frame.File = ""
	}
	b.at[key] = c
	b.children = append(b.children, c)
	return c
}

// ownFrames leaves of a stack the user's own code, the library function that it called last, and the call that is
// the leaf, of a driver allocation. At least one frame is left.
func ownFrames(list []callstack.Frame, tensor bool) []callstack.Frame {
	own := frames.Headline(list)
	called := -1
	for i := range own {
		if list[i].Python {
			called = i
		}
	}
	var kept []callstack.Frame
	for i := range list {
		if i == 0 && !tensor || i == own || i == called || frames.IsUser(&list[i]) || list[i].Mark {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// callTree sums what GPUs hold, from main on, or how that changed.
func callTree(s *ledger.Snapshot, st callstack.Stacks, o Options) *branch {
	root := &branch{at: map[branchKey]*branch{}}
	root.grow(s, st, o, 1)
	if o.Since != nil {
		root.grow(o.Since, st, o, -1)
		root.weigh()
	}
	root.sort()
	return root
}

// grow adds what a snapshot's GPUs hold, times a sign.
func (root *branch) grow(s *ledger.Snapshot, st callstack.Stacks, o Options, sign int64) {
	for _, h := range Holdings(s) {
		if h.Apart() || h.Live == 0 {
			continue
		}
		live := sign * h.Live
		root.bytes += live
		b, list, own := root, []callstack.Frame(nil), -1
		if h.Site != nil {
			list = frames.Visible(st, h.Site.Stack, h.Site.API)
			if !o.AllFrames {
				list = ownFrames(list, h.Site.Kind == ledger.Tensor || h.Mark != "")
			}
			own = frames.Headline(list)
		}
		for i := range list {
			k := len(list) - 1 - i
			b = b.child(&list[k])
			b.bytes += live
			b.user = b.user || k == own
		}
		if h.Mark != "" {
			b = b.child(&callstack.Frame{Function: h.Mark, Mark: true})
			b.bytes += live
		}
	}
}

// weigh drops branches on which nothing changed.
func (b *branch) weigh() {
	own := b.bytes
	for _, c := range b.children {
		c.weigh()
		own -= c.bytes
		b.changed += c.changed
	}
	b.changed += magnitude(own)
	b.children = slices.DeleteFunc(b.children, func(c *branch) bool { return c.changed == 0 })
}

func (b *branch) sort() {
	slices.SortFunc(b.children, func(x, y *branch) int {
		return cmp.Or(cmp.Compare(y.changed, x.changed), cmp.Compare(y.bytes, x.bytes), cmp.Compare(frames.Name(&x.frame), frames.Name(&y.frame)),
			cmp.Compare(x.frame.File, y.frame.File), cmp.Compare(x.frame.Line, y.frame.Line))
	})
	for _, c := range b.children {
		c.sort()
	}
}

// leastShare is what a branch must have of the whole to be shown.
const leastShare = 0.01

// WriteTree writes who holds the GPU memory as a tree of calls, from main on: the largest branches, and of each row of
// calls without a branch its beginning, the user's own line and its end.
func WriteTree(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: doubts(s)}
	viewTitle(p, s, n, o)
	root := callTree(s, st, o)
	p.line(plain, 0, "")
	t := treePage{page: p, total: root.bytes, top: o.top()}
	what, sum := "GPU memory by call tree:", signedTotal(root.bytes)
	if o.Since != nil {
		what, sum = "Change of GPU memory by call tree:", signedBytes(root.bytes)
		t.total, t.change = int64(root.changed), true
	}
	p.text(bold, 0, words(what, sum, n.mark(atTotals), n.mark(atStacks)))
	p.line(plain, 0, "")
	t.children(root, 0)
	footnotes(p, n)
	return p.writeTo(w)
}

type treePage struct {
	*page
	total  int64
	top    int
	change bool // not what is held, but how that changed
}

func (t *treePage) share(bytes int64) float64 { return float64(bytes) / math.Max(float64(t.total), 1) }

// small reports whether a branch has too little to be shown.
func (t *treePage) small(b *branch) bool {
	if t.change {
		return t.share(int64(b.changed)) < leastShare
	}
	return b.bytes > 0 && t.share(b.bytes) < leastShare
}

func (t *treePage) children(b *branch, depth int) {
	shown, rest, restBytes := 0, 0, int64(0)
	least := 1
	if depth == 0 { // a small program beside a large context
		least = min(5, t.top)
	}
	for _, c := range b.children {
		if shown == t.top || t.small(c) && shown >= least {
			rest++
			restBytes += c.bytes
			continue
		}
		shown++
		t.chain(c, depth)
	}
	if rest > 0 {
		t.row(dim, restBytes, depth, callstack.Frame{Function: counted(uint64(rest), "more branch"), Mark: true})
	}
}

// chain writes a branch and what follows it up to the next parting of ways. Between the user's own lines only the
// first and the last are shown.
func (t *treePage) chain(b *branch, depth int) {
	t.row(plain, b.bytes, depth, b.frame)
	skipped := 0
	for len(b.children) == 1 && b.children[0].bytes == b.bytes {
		b = b.children[0]
		if len(b.children) == 1 && b.children[0].bytes == b.bytes && !b.user {
			skipped++
			continue
		}
		depth++
		if skipped > 0 {
			t.line(dim, 0, t.indented("", depth)+counted(uint64(skipped), "frame")+" …")
			skipped = 0
		}
		s := plain
		if b.user {
			s = bold
		}
		t.row(s, b.bytes, depth, b.frame)
	}
	t.children(b, depth+1)
}

const treeFigures = 10 + 7 // columns: bytes, share

// beside reports whether frames have room beside the figures.
func (t *treePage) beside() bool { return t.width >= treeFigures+narrowFrame }

func (t *treePage) indented(figures string, depth int) string {
	if !t.beside() {
		return pad(figures, 2*min(depth, max(t.width-16, 0)/2))
	}
	return pad(figures, treeFigures+2+2*min(depth, max(t.width-treeFigures-30, 0)/2))
}

func (t *treePage) row(s style, bytes int64, depth int, f callstack.Frame) {
	amount := signedTotal(bytes)
	if t.change {
		amount = signedBytes(bytes)
	}
	figures := pad(amount, -10) + pad(fmt.Sprintf("%.1f%%", 100*t.share(bytes)), -7)
	if !t.beside() {
		t.line(s, 0, t.indented("", depth)+words(strings.Fields(figures)...))
		figures, depth = "", depth+1
	}
	text := t.indented(figures, depth)
	t.line(s, 0, text+frameText(&f, t.width-columns(text)))
}

// signedTotal is "3 GiB" or "-3 GiB".
func signedTotal(bytes int64) string {
	if bytes < 0 {
		return "-" + BytesText(-uint64(bytes))
	}
	return BytesText(uint64(bytes))
}
