// SPDX-License-Identifier: Apache-2.0

package apart_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

var (
	cudart  = &callstack.Mapping{Path: "/usr/lib/libcudart.so.12"}
	program = &callstack.Mapping{Path: "/srv/infer"}
)

// stackOf returns a stack from words, leaf first: "utils.py:8" is a line of the user's Python,
// "/usr/lib/python3/dist-packages/x.py:1" one of a library, "take@pool.cc:7" one of C++, "step" a
// function of C++ without lines, "[cut]" a mark.
func stackOf(text string) []callstack.Frame {
	list := []callstack.Frame{{Function: "cudaMalloc", SystemName: "cudaMalloc", Mapping: cudart, Address: 1}}
	for _, word := range strings.Fields(text) {
		f := callstack.Frame{Function: word, Address: 1, Mapping: program}
		function, place, native := strings.Cut(word, "@")
		if !native {
			place = word
		}
		file, number, hasLine := strings.Cut(place, ":")
		switch {
		case strings.HasPrefix(word, "["):
			f = callstack.Frame{Function: word, Mark: true}
		case hasLine:
			f.File = file
			_, _ = fmt.Sscan(number, &f.Line)
			f.Function = strings.TrimSuffix(file, ".py")
			if native {
				f.Function = function
			} else {
				f.Python, f.Mapping = true, nil
			}
		}
		list = append(list, f)
	}
	return list
}

// headsOf returns the headline of each stack; those of which the text begins with "! " leak, of "?
// " nothing is known.
func headsOf(texts []string) (heads []string) {
	var paths []apart.Path
	var of []apart.Evidence
	var stacks [][]callstack.Frame
	for _, text := range texts {
		e := apart.Frees
		if rest, ok := strings.CutPrefix(text, "! "); ok {
			text, e = rest, apart.Leaks
		} else if rest, ok := strings.CutPrefix(text, "? "); ok {
			text, e = rest, apart.Unknown
		}
		stacks, of = append(stacks, stackOf(text)), append(of, e)
		paths = append(paths, apart.Of(stacks[len(stacks)-1]))
	}
	for i, k := range apart.Heads(paths, of) {
		front, back := frames.Parts(&stacks[i][paths[i][k].At])
		if !stacks[i][paths[i][k].At].Python && strings.Contains(back, ":") {
			front = back
		}
		heads = append(heads, front)
	}
	return heads
}

func TestTheHeadlineIsTheInnermostLineThatTellsALeakApart(t *testing.T) {
	for name, c := range map[string]struct {
		stacks []string
		want   string
	}{
		"a helper that one of three callers leaks": {
			[]string{"! utils.py:8 keep.py:20 main.py:5", "utils.py:8 batch.py:31 main.py:6", "utils.py:8 weights.py:12 main.py:2"}, "keep.py:20 utils.py:8 utils.py:8"},
		"two helpers": {[]string{"! utils.py:8 utils.py:30 keep.py:20", "utils.py:8 utils.py:30 batch.py:31"}, "keep.py:20 utils.py:8"},
		"two that leak, by different callers": {
			[]string{"! utils.py:8 a.py:1", "! utils.py:8 b.py:2", "utils.py:8 c.py:3"}, "a.py:1 b.py:2 utils.py:8"},
		"one function, two lines":   {[]string{"! utils.py:8 train.py:20 main.py:1", "utils.py:8 train.py:21 main.py:1"}, "train.py:20 utils.py:8"},
		"far out":                   {[]string{"! utils.py:8 load.py:3 main.py:90", "utils.py:8 load.py:3 main.py:100"}, "main.py:90 utils.py:8"},
		"all leak":                  {[]string{"! utils.py:8 a.py:1", "! utils.py:8 b.py:2"}, "utils.py:8 utils.py:8"},
		"none leaks":                {[]string{"utils.py:8 a.py:1", "utils.py:8 b.py:2"}, "utils.py:8 utils.py:8"},
		"the same line in a loop":   {[]string{"! utils.py:8 main.py:5", "utils.py:8 main.py:5"}, "utils.py:8 utils.py:8"},
		"also the same line":        {[]string{"! utils.py:8 main.py:5", "utils.py:8 main.py:5", "utils.py:8 b.py:2"}, "utils.py:8 utils.py:8 utils.py:8"},
		"unknown with the leak":     {[]string{"! utils.py:8 a.py:1 x.py:1", "? utils.py:8 a.py:1 y.py:1", "utils.py:8 b.py:2"}, "a.py:1 a.py:1 utils.py:8"},
		"unknown elsewhere":         {[]string{"! utils.py:8 a.py:1", "? utils.py:8 c.py:3", "utils.py:8 b.py:2"}, "a.py:1 utils.py:8 utils.py:8"},
		"a recursion":               {[]string{"! walk.py:4 walk.py:4 walk.py:4 keep.py:1", "walk.py:4 other.py:2", "walk.py:4 walk.py:4 other.py:2"}, "keep.py:1 walk.py:4 walk.py:4"},
		"a recursion of two":        {[]string{"! a.py:1 b.py:2 a.py:1 b.py:2 keep.py:3", "a.py:1 b.py:2 other.py:4"}, "keep.py:3 a.py:1"},
		"a decorator of the helper": {[]string{"! utils.py:8 timed.py:4 keep.py:20", "utils.py:8 timed.py:4 batch.py:31"}, "keep.py:20 utils.py:8"},
		"a decorator of callers":    {[]string{"! utils.py:8 keep.py:20 timed.py:4", "utils.py:8 batch.py:31 timed.py:4"}, "keep.py:20 utils.py:8"},
		"a helper in site-packages": {
			[]string{"! /opt/site-packages/aid.py:8 keep.py:20", "/opt/site-packages/aid.py:8 keep.py:20 other.py:1"}, "keep.py:20 keep.py:20"},
		"libraries in between": {
			[]string{"! utils.py:8 /opt/site-packages/x.py:1 keep.py:20", "utils.py:8 /opt/site-packages/y.py:1 batch.py:31"}, "keep.py:20 utils.py:8"},
		"one that does not leak is cut": {[]string{"! utils.py:8 keep.py:20", "utils.py:8 [truncated]"}, "keep.py:20 utils.py:8"},
		"one that leaks is cut":         {[]string{"! utils.py:8 [truncated]", "utils.py:8 batch.py:31"}, "utils.py:8 utils.py:8"},
		"C++":                           {[]string{"! take@pool.cc:7 keep@keep.cc:20 main@main.cc:5", "take@pool.cc:7 run@run.cc:3 main@main.cc:6"}, "keep.cc:20 pool.cc:7"},
		"C++ without lines":             {[]string{"! take keep main", "take run main"}, "keep take"},
		"no own code":                   {[]string{"! /opt/site-packages/a.py:1", "/opt/site-packages/a.py:1"}, "a.py:1 a.py:1"},
	} {
		if got := strings.Join(headsOf(c.stacks), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// The headline of a stack depends on the set of stacks, not on their order.
func TestTheOrderOfStacksMakesNoDifference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var texts []string
		for range 2 + rng.IntN(8) {
			text := []string{"! ", "", "? "}[rng.IntN(3)] + "utils.py:8"
			for range rng.IntN(5) {
				text += fmt.Sprintf(" m.py:%d", 1+rng.IntN(4))
			}
			texts = append(texts, text)
		}
		want := map[string]string{}
		for i, head := range headsOf(texts) {
			want[texts[i]] = head
		}
		slices.Reverse(texts)
		for i, head := range headsOf(texts) {
			if want[texts[i]] != head {
				t.Fatalf("%q: %s, in another order %s", texts, head, want[texts[i]])
			}
		}
	}
}

func TestNamesAreWhatStacksOfALineDifferBy(t *testing.T) {
	for _, c := range []struct{ lists, want string }{
		{"GELU.forward gelu; Linear.forward linear", "GELU.forward; Linear.forward"},
		{"Sequential.forward GELU.forward; Sequential.forward Linear.forward; LayerNorm.forward layer_norm", "GELU.forward; Linear.forward; LayerNorm.forward"},
		{"Linear.forward linear; Linear.forward linear; GELU.forward", "Linear.forward; Linear.forward; GELU.forward"},
		{"a b; a", "b; a"},
		{"a; a", "a; a"},
		{"a", "a"},
		{"; a", "; a"},
	} {
		var lists [][]string
		for _, text := range strings.Split(c.lists, ";") {
			lists = append(lists, strings.Fields(text))
		}
		if got := strings.Join(apart.Names(lists), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", c.lists, got, c.want)
		}
	}
}

// 10,000 stacks with 60 own lines each: they are read once.
func BenchmarkHeads(b *testing.B) {
	var paths []apart.Path
	var of []apart.Evidence
	for i := range 10_000 {
		var text strings.Builder
		text.WriteString("utils.py:8")
		for k := range 60 {
			fmt.Fprintf(&text, " m.py:%d", i*(k%2)+k)
		}
		paths, of = append(paths, apart.Of(stackOf(text.String()))), append(of, apart.Evidence(i%3))
	}
	for b.Loop() {
		apart.Heads(paths, of)
	}
}
