// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Branch is a frame of the call tree, and what the stacks through it hold.
type Branch struct {
	Frame    callstack.Frame
	Bytes    int64
	Changed  uint64 // how much its own bytes and those of the branches on it changed, each by its amount
	User     bool   // the headline of a stack
	Children []*Branch
	at       map[LineKey]*Branch
}

// LineKey: frames of Python are one per line, native ones one per function.
type LineKey struct {
	name, file string
	line       int
	python     bool
}

// LineKeyOf tells lines of code apart.
func LineKeyOf(f *callstack.Frame) LineKey {
	return LineKey{frames.Name(f), f.File, f.Line, f.Python}
}

func (b *Branch) child(f *callstack.Frame) *Branch {
	key := LineKey{name: frames.Name(f), python: f.Python}
	if f.Python {
		key.file, key.line = f.File, f.Line
	} else if f.Mapping != nil {
		key.file = f.Mapping.Path
	}
	if c := b.at[key]; c != nil {
		return c
	}
	c := &Branch{Frame: *f, at: map[LineKey]*Branch{}}
	if !f.Python {
		c.Frame.Line = 0 // several lines of the function are one here
		c.Frame.File = ""
	}
	b.at[key] = c
	b.Children = append(b.Children, c)
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

// CallTree sums what GPUs hold, from main on, or how that changed.
func CallTree(s *ledger.Snapshot, st callstack.Stacks, o Options) *Branch {
	root := &Branch{at: map[LineKey]*Branch{}}
	root.grow(s, st, o, 1)
	if o.Since != nil {
		root.grow(o.Since, st, o, -1)
		root.weigh()
	}
	root.sort()
	return root
}

// grow adds what a snapshot's GPUs hold, times a sign.
func (root *Branch) grow(s *ledger.Snapshot, st callstack.Stacks, o Options, sign int64) {
	for _, h := range Holdings(s) {
		if h.Apart() || h.Live == 0 {
			continue
		}
		live := sign * h.Live
		root.Bytes += live
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
			b.Bytes += live
			b.User = b.User || k == own
		}
		if h.Mark != "" {
			b = b.child(&callstack.Frame{Function: h.Mark, Mark: true})
			b.Bytes += live
		}
	}
}

// weigh drops branches on which nothing changed.
func (b *Branch) weigh() {
	own := b.Bytes
	for _, c := range b.Children {
		c.weigh()
		own -= c.Bytes
		b.Changed += c.Changed
	}
	b.Changed += Magnitude(own)
	b.Children = slices.DeleteFunc(b.Children, func(c *Branch) bool { return c.Changed == 0 })
}

func (b *Branch) sort() {
	slices.SortFunc(b.Children, func(x, y *Branch) int {
		return cmp.Or(cmp.Compare(y.Changed, x.Changed), cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(frames.Name(&x.Frame), frames.Name(&y.Frame)),
			cmp.Compare(x.Frame.File, y.Frame.File), cmp.Compare(x.Frame.Line, y.Frame.Line))
	})
	for _, c := range b.Children {
		c.sort()
	}
}
