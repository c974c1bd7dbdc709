// SPDX-License-Identifier: Apache-2.0

package remedy

import (
	"cmp"
	"path"
	"slices"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// most is the largest number of lines, and of functions, that are candidates.
const most = 3

// containers matches modules of PyTorch that only call others or are one operator. People recompute
// blocks of their own, which lie between them.
var containers = lazyregexp.New(`(^|/)torch/nn/modules/(container|module|linear|conv|activation|normalization|batchnorm|dropout|sparse|pooling|padding|loss)\.py$`)

// Functions returns the functions whose recomputation may save most, most first: forward methods
// with two or more calls in each trained pass, by what their calls save for the backward pass.
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
	names := p.fileNames()
	for _, f := range largest(sums) {
		n := len(passes[f])
		f.file = names(f.file)
		if calls, _, err := p.calls(f, true); err == nil && len(calls) >= 2*n && len(list) < most {
			list = append(list, f)
		}
	}
	return list
}

// Lines returns the lines of the user's own code that keep most at an operation, most first: those
// with at least three executions whose memory outlives the next but one. own reports whether a
// frame is the user's.
func (p *Program) Lines(at int, own func(*callstack.Frame) bool) (list []Line) {
	sums := map[Line]uint64{}
	inner := map[Line]int{} // how far from the leaf
	for b := range p.Trace.Blocks {
		block := uint32(b)
		s := p.site(block)
		l := p.lives[b]
		if l.Malloc < 0 || l.Malloc > at || p.until(block) <= at || s.role == loading || s.stepping || s.backward || s.workspace || p.forBackward(block) {
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
	names := p.fileNames()
	var found []Line
	kept := map[Line]kept{}
	for _, line := range largest(sums) {
		if len(found) == 4*most {
			break
		}
		short := Line{names(line.File), line.Line}
		inner[short] = inner[line]
		if k := p.keptBy(short); len(k.calls) >= 3 && k.bytes > 0 {
			kept[short] = k
			found = append(found, short)
		}
	}
	slices.SortStableFunc(found, func(a, b Line) int { return cmp.Compare(kept[b].bytes, kept[a].bytes) })
	for _, line := range found {
		best := line
		for _, l := range found {
			if kept[l].bytes < kept[line].bytes/10*9 {
				continue
			}
			// Of lines that keep the same: one whose results are all kept, and of these the
			// innermost.
			if a, b := kept[l].all(), kept[best].all(); a && !b || a == b && inner[l] < inner[best] {
				best = l
			}
		}
		if !slices.Contains(list, best) && len(list) < most {
			list = append(list, best)
		}
	}
	return list
}

// all reports whether a line keeps all that outlives its statement.
func (k kept) all() bool { return k.bytes >= k.outlives/20*19 }

// fileNames returns a function that shortens a path to its last part, where no other file has that.
func (p *Program) fileNames() func(string) string {
	paths := map[string]string{} // by last part; "": several
	for _, s := range p.sites {
		for i := range s.stack {
			if file := s.stack[i].File; file != "" {
				base := path.Base(file)
				if known, ok := paths[base]; ok && known != file {
					file = ""
				}
				paths[base] = file
			}
		}
	}
	return func(file string) string {
		if base := path.Base(file); paths[base] == file {
			return base
		}
		return file
	}
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

// Candidates returns remedies to try, without those that only a user can decide on: batches and
// ranks.
func (p *Program) Candidates(at int, own func(*callstack.Frame) bool) (list []Remedy) {
	for _, line := range p.Lines(at, own) {
		list = append(list, Remedy{Kind: NoLine, Line: line})
	}
	list = append(list, Remedy{Kind: NoGradient})
	functions := p.Functions()
	for _, f := range functions {
		list = append(list, Remedy{Kind: Recompute, Function: f})
	}
	for _, f := range functions[:min(1, len(functions))] {
		list = append(list, Remedy{Kind: ToHost, Code: Code{Function: f}})
	}
	return append(list, Remedy{Kind: EightBits}, Remedy{Kind: HalfFloat})
}
