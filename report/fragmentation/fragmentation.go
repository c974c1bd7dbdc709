// SPDX-License-Identifier: Apache-2.0

// Package fragmentation finds the lines of code whose tensors keep PyTorch's cache from the driver:
// a segment goes back only when none of its blocks is live.
package fragmentation

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Cache is what one of PyTorch's allocators cannot give back, by line. Its rows and Rest add up to
// Free.
type Cache struct {
	*ledger.Stuck
	Rows []Row
	Rest Row // segments with blocks of more lines than a row has

	Unsampled uint64 // bytes of blocks outside of the sample, whose lines are not known
}

// Row is lines that together hold segments. If their blocks and those of the rows before were
// freed, torch.cuda.empty_cache() would return Bytes.
type Row struct {
	Lines    []Line // the one with the most bytes first
	Segments uint64
	Bytes    uint64 // of the segments
	Free     uint64 // part of Bytes that is in no block: what is stuck
	Alone    uint64 // part of Free in segments where only these lines have blocks
}

// Line is the blocks of one line of code in the segments of a Row. Of blocks outside of the sample,
// the line is not known; then those of one holder are a Line.
type Line struct {
	Frame         callstack.Frame // the headline
	Sampled       bool
	Blocks, Bytes uint64
	Holders       []ledger.SiteHolder // who keeps how many of Bytes, the largest first; the others have no known holder
}

// NotSampled is the name of the line of blocks outside of the sample.
const NotSampled = "[not sampled]"

// Older is the name of the line of blocks from before the attach.
const Older = "[before the attach]"

const (
	maxRows     = 50 // of a Cache
	maxTogether = 4  // lines of a row
)

// Caches returns what is stuck, in the order of Snapshot.Stuck.
func Caches(s *ledger.Snapshot, st callstack.Stacks) []Cache {
	list := make([]Cache, 0, len(s.Stuck))
	for i := range s.Stuck {
		list = append(list, newCache(&s.Stuck[i], st))
	}
	return list
}

// Blocks returns how many blocks the lines of a row have in its segments, and their bytes.
func (r *Row) Blocks() (blocks, bytes uint64) {
	for i := range r.Lines {
		blocks += r.Lines[i].Blocks
		bytes += r.Lines[i].Bytes
	}
	return blocks, bytes
}

// set is segments with blocks of the same lines.
type set struct {
	*ledger.StuckSet
	left  []int // its lines that no row has yet, sorted
	taken bool
}

// builder makes the rows of one allocator.
type builder struct {
	st      callstack.Stacks
	numbers map[lineKey]int
	stacks  map[stackKey]int
	lines   []Line
	sets    []set
	setsOf  [][]int // by line: indices of the sets with blocks of it

	candidates candidates
}

// lineKey identifies a line, or the holder of blocks outside of the sample.
type lineKey struct {
	function, file string
	line           int
	python         bool
	sampled        bool
	holder         int
}

type stackKey struct {
	stack uint64
	api   string
}

func newCache(x *ledger.Stuck, st callstack.Stacks) Cache {
	b := builder{st: st, numbers: map[lineKey]int{}, stacks: map[stackKey]int{}, candidates: candidates{at: map[[maxTogether]int]int{}}}
	c := Cache{Stuck: x}
	for i := range x.Sets {
		of := set{StuckSet: &x.Sets[i]}
		for k := range of.By {
			by := &of.By[k]
			if !by.Sampled && !by.Older {
				c.Unsampled += by.Bytes
			}
			if n := b.number(by); !slices.Contains(of.left, n) {
				of.left = append(of.left, n)
				b.setsOf[n] = append(b.setsOf[n], i)
			}
		}
		slices.Sort(of.left)
		b.candidates.change(&of, true)
		b.sets = append(b.sets, of)
	}
	for len(c.Rows) < maxRows {
		lines := b.candidates.best()
		if lines == nil {
			break
		}
		c.Rows = append(c.Rows, b.take(lines))
	}
	for i := range b.sets {
		if of := &b.sets[i]; !of.taken {
			c.Rest.add(of)
		}
	}
	return c
}

func (r *Row) add(of *set) {
	r.Segments += of.Segments
	r.Bytes += of.Bytes
	r.Free += of.Free
}

// number returns that of the line of some blocks.
func (b *builder) number(by *ledger.StuckBy) int {
	switch {
	case by.Older:
		return b.line(lineKey{function: Older, holder: by.Holder}, callstack.Frame{Function: Older, Mark: true})
	case !by.Sampled:
		return b.line(lineKey{holder: by.Holder}, callstack.Frame{Function: NotSampled, Mark: true})
	}
	k := stackKey{by.Stack, by.API}
	n, ok := b.stacks[k]
	if !ok {
		list := frames.Visible(b.st, by.Stack, by.API)
		f := list[frames.Headline(list)]
		n = b.line(lineKey{function: frames.Name(&f), file: f.File, line: f.Line, python: f.Python, sampled: true}, f)
		b.stacks[k] = n
	}
	return n
}

func (b *builder) line(k lineKey, f callstack.Frame) int {
	n, ok := b.numbers[k]
	if !ok {
		n = len(b.lines)
		b.numbers[k] = n
		b.lines = append(b.lines, Line{Frame: f, Sampled: k.sampled})
		b.setsOf = append(b.setsOf, nil)
	}
	return n
}

// take returns the row of some lines: the segments that have blocks of no other lines than these
// and those of earlier rows.
func (b *builder) take(lines []int) (r Row) {
	at := map[int]int{}
	for i, n := range lines {
		at[n] = i
		r.Lines = append(r.Lines, b.lines[n])
	}
	for _, i := range b.setsWith(lines) {
		of := &b.sets[i]
		b.candidates.change(of, false)
		of.left = slices.DeleteFunc(slices.Clone(of.left), func(n int) bool { _, is := at[n]; return is })
		if len(of.left) > 0 || of.More > 0 {
			b.candidates.change(of, true)
			continue
		}
		of.taken = true
		r.add(of)
		alone := true
		for k := range of.By {
			if i, is := at[b.number(&of.By[k])]; is {
				r.Lines[i].add(&of.By[k])
			} else {
				alone = false
			}
		}
		if alone {
			r.Alone += of.Free
		}
	}
	for i := range r.Lines {
		slices.SortStableFunc(r.Lines[i].Holders, func(a, b ledger.SiteHolder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	}
	slices.SortStableFunc(r.Lines, func(a, b Line) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return r
}

func (l *Line) add(by *ledger.StuckBy) {
	l.Blocks += by.Blocks
	l.Bytes += by.Bytes
	if by.Holder < 0 {
		return
	}
	i := slices.IndexFunc(l.Holders, func(h ledger.SiteHolder) bool { return h.Holder == by.Holder })
	if i < 0 {
		i = len(l.Holders)
		l.Holders = append(l.Holders, ledger.SiteHolder{Holder: by.Holder})
	}
	l.Holders[i].Bytes += by.Bytes
}
