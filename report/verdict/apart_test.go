// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"fmt"
	"testing"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// helped are stacks of a helper: stack N is of caller N%100, which calls by path N/100.
type helped struct{}

func (helped) Stack(id uint64) []callstack.Frame {
	line := func(function, file string, n int) callstack.Frame {
		return callstack.Frame{Function: function, File: "/home/u/" + file, Line: n, Python: true}
	}
	return []callstack.Frame{
		{Function: "cudaMalloc", Mapping: &callstack.Mapping{Path: "/usr/lib/libcudart.so.12"}},
		line("to_gpu", "utils.py", 8), line(fmt.Sprint("caller", id%100), "train.py", int(id%100)), line("main", "main.py", int(id/100)),
	}
}

// linesOf returns the lines of groups with their classes: "to_gpu steady".
func linesOf(s *ledger.Snapshot) (list map[string]Class, groups []Group) {
	list, groups = map[string]Class{}, JudgeLines(s, Judge(s, helped{}))
	for i := range groups {
		list[groups[i].Line.Function] = groups[i].Class
	}
	return list, groups
}

func TestALineThatLeaksForOneCallerIsThatCaller(t *testing.T) {
	for _, kind := range []ledger.Kind{ledger.Device, ledger.Tensor} {
		p := newProgram(1e8, 1)
		p.kind = kind
		for range 20 {
			p.alloc(3, batch) // weights
		}
		p.train(300, func(int) {
			p.alloc(1, batch)
			p.use(2, batch)
			p.use(2, batch)
		})
		got, groups := linesOf(p.snapshot())
		if len(groups) != 2 || got["caller1"] != Leaking || got["to_gpu"] == 0 || got["to_gpu"] >= Growing {
			t.Errorf("%v: %v", kind, got)
		}
		if g := &groups[0]; g.Head != 2 || !g.User || len(g.Sites) != 1 {
			t.Errorf("%v: headline %d, own %v, of sites %v", kind, g.Head, g.User, g.Sites)
		}
	}
}

func TestALineThatLeaksForAllIsTheHelper(t *testing.T) {
	p := newProgram(1e8, 1)
	p.train(300, func(int) {
		p.alloc(1, batch)
		p.alloc(2, batch)
	})
	if got, _ := linesOf(p.snapshot()); len(got) != 1 || got["to_gpu"] != Leaking {
		t.Error(got)
	}
}

// One bounded cache with two callers: what one adds, the other drops.
func TestACacheWithTwoCallersIsNoLeakOfOne(t *testing.T) {
	p := newProgram(1e8, 1)
	var list []uint64
	for range 200 {
		list = append(list, p.alloc(2, batch))
		p.time += 0.5
	}
	p.train(200, func(int) {
		p.alloc(1, batch)
		p.free(list[0])
		list = list[1:]
	})
	got, _ := linesOf(p.snapshot())
	for line, class := range got {
		if class == Leaking {
			t.Errorf("%s leaks: %v", line, got)
		}
	}
}

// The leak of one caller comes by many ways, each too seldom for a proof.
func TestACallerThatLeaksByManyPathsIsTheLine(t *testing.T) {
	p := newProgram(1e8, 1)
	p.train(300, func(i int) {
		if i%3 == 0 {
			p.alloc(uint64(1+100*(1+i/3%20)), batch)
		}
		p.use(2, batch)
	})
	got, groups := linesOf(p.snapshot())
	if got["caller1"] != Leaking || got["to_gpu"] >= Growing {
		t.Errorf("%v", got)
	}
	if len(groups[0].Sites) != 20 {
		t.Errorf("%d sites", len(groups[0].Sites))
	}
}

// A headline in top changes once, when the leak is proven, and never back.
func TestHeadlinesDoNotFlicker(t *testing.T) {
	for seed := range uint64(10) {
		p := newProgram(1e8, seed)
		p.kind = ledger.Tensor
		changes, last := 0, false
		p.train(600, func(i int) {
			if p.rng.IntN(3) > 0 {
				p.alloc(1, batch)
			}
			for range p.rng.IntN(4) {
				p.use(2, batch)
			}
			if i > 20 && i%10 == 0 {
				got, _ := linesOf(p.snapshot())
				if now := got["caller1"] > 0; now != last {
					changes, last = changes+1, now
				}
			}
		})
		if changes != 1 || !last {
			t.Errorf("seed %d: the headline changed %d times", seed, changes)
		}
	}
}
