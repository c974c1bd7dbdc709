// SPDX-License-Identifier: Apache-2.0

package html

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	rootClass = 5   // of frame 0, beside those of frames.Class
	maxName   = 300 // runes of a name; of a longer one the middle is left out
	maxDepth  = 200 // frames of a stack; of a longer one the middle is left out
)

// frameKey is what makes a frame in the page.
type frameKey struct {
	name, file  string
	line, class int
}

// frameFiles are where a frame's code is, of the first of several with the same key, and the name
// that it has in profiles.
type frameFiles struct{ dir, object, simple string }

// stackKey names a stack; one of id 0 is made of the call's name.
type stackKey struct {
	id   uint64
	api  string
	head int // index of a headline that was judged; else 0
}

// stack is a list of frames, outermost first, and its headline. Profiles leave out the last below
// of them, which code above them called.
type stack struct {
	frames []int
	head   int
	below  int
	callee int      // a string
	calls  []string // what head called, see frames.Below
}

func (b *builder) frame(k frameKey) int { return b.frameIn(k, frameFiles{simple: k.name}) }

func (b *builder) frameIn(k frameKey, in frameFiles) int {
	i, ok := b.frames[k]
	if !ok {
		c := &b.p.Frames
		i = len(c.Name)
		b.frames[k] = i
		c.Name = append(c.Name, b.text(k.name))
		c.File = append(c.File, b.text(k.file))
		c.Line = append(c.Line, k.line)
		c.Class = append(c.Class, k.class)
		c.Dir = append(c.Dir, b.text(in.dir))
		c.Object = append(c.Object, b.text(in.object))
		c.Simple = append(c.Simple, b.text(in.simple))
	}
	return i
}

// mark returns a frame that is no code: "[pytorch cache]".
func (b *builder) mark(text string) int {
	return b.frame(frameKey{name: text, class: int(frames.Remark)})
}

// stack returns the frames of a stack id, as reports show them, with the headline of
// frames.Headline.
func (b *builder) stack(id uint64, api string) stack { return b.stackWith(id, api, 0) }

// stackWith is stack with the headline at an index, if it is not 0.
func (b *builder) stackWith(id uint64, api string, head int) stack {
	key := stackKey{id: id, head: head}
	if id == 0 {
		key.api = api
	}
	s, ok := b.stacks[key]
	if ok {
		return s
	}
	list := frames.Visible(b.in.Stacks, id, api)
	if head <= 0 || head >= len(list) {
		head = frames.Headline(list)
	}
	s.head = b.frameOf(&list[head])
	s.calls = frames.Below(list, head)
	below, callee := frames.Leaf(list)
	s.below, s.callee = min(below, maxDepth/2-1), b.text(shorten(callee))
	for i := len(list) - 1; i >= 0; i-- {
		if i == maxDepth/2 && len(list) > maxDepth {
			s.frames = append(s.frames, b.mark("[frames left out]"))
		}
		if n := len(list) - maxDepth; n > 0 && i >= maxDepth/2 && i < maxDepth/2+n {
			continue
		}
		s.frames = append(s.frames, b.frameOf(&list[i]))
	}
	b.stacks[key] = s
	return s
}

// frameOf caches frames, since their class takes several regular expressions.
func (b *builder) frameOf(f *callstack.Frame) int {
	key := *f
	if f.Function != "" && f.Mapping != nil {
		key.Address = 0 // says nothing then
	}
	i, ok := b.known[key]
	if !ok {
		i = b.frameIn(keyOf(f), filesOf(f))
		b.known[key] = i
	}
	return i
}

// keyOf returns the key of a frame. Native code without a line has the name of its library:
// "[libc.so.6]".
func keyOf(f *callstack.Frame) frameKey {
	k := frameKey{name: shorten(frames.Name(f)), class: int(frames.ClassOf(f))}
	switch {
	case f.Mark:
	case f.File != "":
		k.file, k.line = shorten(frames.ShortFile(f.File)), max(f.Line, 0)
	case f.Mapping != nil:
		k.file = shorten("[" + untrusted.Clean(path.Base(f.Mapping.Path)) + "]")
	}
	return k
}

func filesOf(f *callstack.Frame) (in frameFiles) {
	if file := untrusted.Clean(f.File); !f.Mark && len(file) <= maxName {
		in.dir = strings.TrimSuffix(file, frames.ShortFile(f.File))
	}
	if f.Mapping != nil && !f.Python && !f.Mark {
		in.object = shorten(untrusted.Clean(f.Mapping.Path))
	}
	in.simple = shorten(frames.ShortName(f))
	return in
}

func shorten(s string) string {
	if len(s) <= maxName {
		return s
	}
	r := []rune(s)
	if len(r) <= maxName {
		return s
	}
	return string(r[:maxName*2/3]) + "…" + string(r[len(r)-maxName/3:])
}

// tree merges stacks with the same beginning. A node's parent has the lower number.
type tree struct {
	parent, frame []int32
	children      map[[2]int32]int32 // node and frame below it
}

// leaf returns the node at the end of a path of frames from the root.
func (t *tree) leaf(path []int) int32 {
	if t.children == nil {
		t.children = map[[2]int32]int32{}
		t.parent, t.frame = []int32{-1}, []int32{0}
	}
	at := int32(0)
	for _, f := range path {
		key := [2]int32{at, int32(f)}
		next, ok := t.children[key]
		if !ok {
			next = int32(len(t.parent))
			t.children[key] = next
			t.parent = append(t.parent, at)
			t.frame = append(t.frame, int32(f))
		}
		at = next
	}
	return at
}

// columns writes the tree, of siblings the one with the most live bytes first, then allocated
// bytes. It returns the place of each node in the columns.
func (t *tree) columns(entries []entry, c *treeColumns) []int32 {
	t.leaf(nil)
	n := len(t.parent)
	live, alloc := make([]int64, n), make([]uint64, n)
	for i := range entries {
		e := &entries[i]
		live[e.node] += max(e.live, 0)
		alloc[e.node] += e.alloc
	}
	below := make([][]int32, n)
	for i := n - 1; i > 0; i-- {
		live[t.parent[i]] += live[i]
		alloc[t.parent[i]] += alloc[i]
		below[t.parent[i]] = append(below[t.parent[i]], int32(i))
	}
	place := make([]int32, n)
	type step struct{ node, depth int32 }
	for todo := []step{{}}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		place[at.node] = int32(len(c.Depth))
		c.Depth = append(c.Depth, at.depth)
		c.Frame = append(c.Frame, t.frame[at.node])
		list := below[at.node]
		slices.SortFunc(list, func(x, y int32) int { // the first one last, as it is taken from the end
			return cmp.Or(cmp.Compare(live[x], live[y]), cmp.Compare(alloc[x], alloc[y]), cmp.Compare(t.frame[y], t.frame[x]))
		})
		for _, node := range list {
			todo = append(todo, step{node, at.depth + 1})
		}
	}
	return place
}
