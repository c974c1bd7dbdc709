// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Branch is a frame of the call tree, with the bytes of the stacks through it.
type Branch struct {
	Frame    callstack.Frame
	Bytes    int64
	Changed  uint64 // sum of the absolute changes of its own bytes and of its branches
	User     bool   // the headline of a stack
	Children []*Branch
	at       map[LineKey]*Branch
}

// LineKey identifies a branch: Python frames by line, native frames by function.
type LineKey struct {
	name, file string
	line       int
	python     bool
}

// LineKeyOf returns the key of a line of code.
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
		c.Frame.Line = 0 // all lines of the function share the branch
		c.Frame.File = ""
	}
	b.at[key] = c
	b.Children = append(b.Children, c)
	return c
}

// OwnFrames keeps the user's own frames of a stack, the last library function that they called, be
// it through Module._call_impl and the like, and the leaf of a driver allocation. It keeps at least
// one frame.
func OwnFrames(list []callstack.Frame, tensor bool) []callstack.Frame {
	own := frames.Headline(list)
	called := -1
	for i := range own {
		if list[i].Python && !frames.IsPlumbing(&list[i]) {
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

// CallTree sums the memory on GPUs from main on, or its changes since o.Since.
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

// grow adds what a snapshot has on GPUs, times sign.
func (root *Branch) grow(s *ledger.Snapshot, st callstack.Stacks, o Options, sign int64) {
	kept := KeptBy(s)
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
				list = OwnFrames(list, h.Site.Kind == ledger.Tensor || h.Mark != "")
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
		if h.IsNameless() && o.Since == nil { // a walk in between changes no memory
			b.addPaths(kept[h.Process].Divide(s, &h))
		}
	}
}

// addPaths adds the paths of holders below memory without a stack.
func (b *Branch) addPaths(shares []HeldShare) {
	for _, x := range shares {
		if x.Line == nil {
			continue
		}
		at := b
		for _, name := range x.Line.Frames {
			at = at.child(&callstack.Frame{Function: name, Mark: true})
			at.Bytes += int64(x.Bytes)
		}
	}
}

// weigh computes Changed, and drops branches without changes.
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
