// SPDX-License-Identifier: Apache-2.0

package fragmentation

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// lines has a line of its own for each stack below 100; 100 is a second stack of line 1.
type lines struct{}

func (lines) Stack(id uint64) []callstack.Frame {
	if id == 100 {
		return append([]callstack.Frame{{Function: "clone"}}, lines{}.Stack(1)...)
	}
	return []callstack.Frame{{Function: "f", File: "a.py", Line: int(id), Python: true}}
}

// cacheOf is an allocator with sets such as "10 1,2": 10 bytes are free in a segment of 100 bytes
// with a block of 1 byte of each stack; 0 is outside of the sample, and + stands for more stacks.
func cacheOf(texts ...string) Cache {
	x := &ledger.Stuck{}
	for _, text := range texts {
		set := ledger.StuckSet{Segments: 1, Bytes: 100}
		free, stacks, _ := strings.Cut(text, " ")
		fmt.Sscan(free, &set.Free)
		for _, stack := range strings.Split(stacks, ",") {
			by := ledger.StuckBy{Sampled: true, API: "torch", Holder: -1, Blocks: 1, Bytes: 1}
			if stack == "+" {
				set.More = 1
				continue
			}
			fmt.Sscan(stack, &by.Stack)
			by.Sampled = by.Stack != 0
			set.By = append(set.By, by)
		}
		x.Segments++
		x.Bytes += set.Bytes
		x.Free += set.Free
		x.Sets = append(x.Sets, set)
	}
	return newCache(x, lines{})
}

func describe(c Cache) (text string) {
	for _, r := range c.Rows {
		var names []string
		for _, l := range r.Lines {
			name := fmt.Sprint(l.Frame.Line)
			if !l.Sampled {
				name = "?"
			}
			names = append(names, fmt.Sprintf("%sx%d", name, l.Blocks))
		}
		text += fmt.Sprintf("%d (%d alone) %s; ", r.Free, r.Alone, strings.Join(names, " "))
	}
	return text + fmt.Sprint("rest ", c.Rest.Free)
}

func TestRowsAreTheLinesToFreeFirst(t *testing.T) {
	for _, c := range []struct {
		sets []string
		want string
	}{
		{nil, "rest 0"},
		{[]string{"10 1", "30 2"}, "30 (30 alone) 2x1; 10 (10 alone) 1x1; rest 0"},
		{[]string{"10 1", "7 100", "7 1,100"}, "24 (24 alone) 1x4; rest 0"},
		{[]string{"10 1", "30 1,2"}, "40 (40 alone) 1x2 2x1; rest 0"},                      // both at once are worth more
		{[]string{"20 1", "30 1,2", "1 2"}, "20 (20 alone) 1x1; 31 (1 alone) 2x2; rest 0"}, // the second adds what both hold
		{[]string{"10 0", "5 0,3"}, "10 (10 alone) ?x1; 5 (0 alone) 3x1; rest 0"},
		{[]string{"90 1,2,3,4,5", "10 1", "3 1,+"}, "10 (10 alone) 1x1; 90 (0 alone) 2x1 3x1 4x1 5x1; rest 3"},
		{[]string{"90 1,2,3,4,5,6", "10 7"}, "10 (10 alone) 7x1; rest 90"},
	} {
		if got := describe(cacheOf(c.sets...)); got != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.sets, got, c.want)
		}
	}
}

func TestRowsAddUp(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var sets []string
		for range rng.IntN(300) {
			var stacks []string
			for range 1 + rng.IntN(6) {
				stacks = append(stacks, fmt.Sprint(rng.IntN(40)))
			}
			sets = append(sets, fmt.Sprint(rng.IntN(99), " ", strings.Join(stacks, ",")))
		}
		c := cacheOf(sets...)
		sum, named := c.Rest, map[int]bool{}
		for _, r := range c.Rows {
			sum.Free, sum.Bytes, sum.Segments = sum.Free+r.Free, sum.Bytes+r.Bytes, sum.Segments+r.Segments
			if r.Alone > r.Free || r.Free > r.Bytes || len(r.Lines) == 0 || len(r.Lines) > maxTogether {
				t.Errorf("seed %d: row %+v", seed, r)
			}
			for _, l := range r.Lines {
				if l.Sampled && named[l.Frame.Line] {
					t.Errorf("seed %d: line %d is in two rows", seed, l.Frame.Line)
				}
				named[l.Frame.Line] = true
			}
		}
		if sum.Free != c.Free || sum.Bytes != c.Bytes || sum.Segments != c.Segments {
			t.Errorf("seed %d: rows add up to %+v, want %d of %d bytes in %d", seed, sum, c.Free, c.Bytes, c.Segments)
		}
	}
}

func BenchmarkRowsOf10000Sets(b *testing.B) {
	var sets []string
	for i := range 10_000 {
		sets = append(sets, fmt.Sprintf("%d %d,%d,%d", i%50, i%97+1, i%89+101, i%83+201))
	}
	for b.Loop() {
		cacheOf(sets...)
	}
}
