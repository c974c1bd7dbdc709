// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// most is how many lines and functions are candidates.
const most = 3

// containers call other modules, whose blocks are what people recompute.
var containers = regexp.MustCompile(`(^|/)torch/nn/modules/(container|module|linear|conv|activation|normalization|batchnorm|dropout|sparse|pooling|padding|loss)\.py$`)

// Functions returns the functions whose recomputation may save most, most first: forward methods with
// two or more calls in each trained pass, by what their calls save for the backward pass.
func (p *Program) Functions() (list []Function) {
	sums, passes := map[Function]uint64{}, map[Function]map[int]bool{}
	for n, s := range p.passes {
		for i := s.begin; i < s.backward; i++ {
			op := p.Trace.Ops[i]
			if op.Kind != allocsim.Malloc || p.until(op.Block) <= s.backward || p.until(op.Block) >= s.end {
				continue
			}
			seen := map[Function]bool{}
			for j := range p.site(op.Block).stack {
				f := &p.site(op.Block).stack[j]
				key := Function{f.File, f.Function}
				if !f.Python || method(f.Function) != "forward" || containers.MatchString(f.File) || seen[key] {
					continue
				}
				seen[key] = true
				sums[key] += p.size(op.Block)
				if passes[key] == nil {
					passes[key] = map[int]bool{}
				}
				passes[key][n] = true
			}
		}
	}
	for _, f := range largest(sums) {
		if calls, err := p.calls(f); err == nil && len(calls) >= 2*len(passes[f]) && len(list) < most {
			list = append(list, f)
		}
	}
	return list
}

// Lines returns the lines of the user's own code that keep most at an operation, most first: those with at
// least three executions whose memory outlives the next but one. Own tells the user's frames.
func (p *Program) Lines(at int, own func(*callstack.Frame) bool) (list []Line) {
	sums := map[Line]uint64{}
	inner := map[Line]int{} // how far from the leaf
	for b := range p.Trace.Blocks {
		block := uint32(b)
		s := p.site(block)
		l := p.lives[b]
		if l.Malloc < 0 || l.Malloc > at || p.until(block) <= at || s.role == loading || s.stepping || s.backward || s.workspace {
			continue
		}
		for i := range s.stack {
			if f := &s.stack[i]; f.Python && own(f) {
				line := Line{f.File, f.Line}
				sums[line] += p.size(block)
				inner[line] = max(inner[line], i)
			}
		}
	}
	var found []Line
	kept := map[Line]uint64{}
	for _, line := range largest(sums) {
		if len(found) == 4*most {
			break
		}
		if calls := p.executions(line); len(calls) < 3 && len(p.repeats(calls)) < 3 {
			continue
		}
		if _, seen, err := p.Without(line); err == nil {
			kept[line] = seen.Bytes
			found = append(found, line)
		}
	}
	// Of lines that keep the same, the innermost is what to change.
	slices.SortStableFunc(found, func(a, b Line) int {
		if c := cmp.Compare(kept[b], kept[a]); c != 0 {
			return c
		}
		return cmp.Compare(inner[a], inner[b])
	})
	for _, line := range found {
		if !slices.ContainsFunc(list, func(l Line) bool { return kept[l] == kept[line] }) && len(list) < most {
			list = append(list, line)
		}
	}
	return list
}

// largest returns the keys of sums, the largest first.
func largest[K interface {
	comparable
	String() string
}](sums map[K]uint64) (keys []K) {
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b K) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), cmp.Compare(a.String(), b.String()))
	})
	return keys
}

// Candidates returns remedies to try, without those that only a user can decide on: batches and ranks.
func (p *Program) Candidates(at int, own func(*callstack.Frame) bool) (list []Remedy) {
	for _, line := range p.Lines(at, own) {
		list = append(list, Remedy{Kind: NoLine, Line: line})
	}
	list = append(list, Remedy{Kind: NoGradient})
	for _, f := range p.Functions() {
		list = append(list, Remedy{Kind: Recompute, Function: f})
	}
	return append(list, Remedy{Kind: EightBits}, Remedy{Kind: HalfFloat})
}
