// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

type groupKey struct {
	process       int
	device        int32
	kind          ledger.Kind
	segment       bool
	function, api string
	file          string
	line          int
}

func keyOf(x *ledger.Site, f *callstack.Frame) groupKey {
	k := groupKey{process: x.Process, device: x.Device, kind: x.Kind, segment: x.Segment, function: f.Function, file: f.File, line: f.Line}
	if x.Stack == 0 {
		k.api = x.API
	}
	return k
}

// JudgeLines judges the lines that allocate, from the verdicts that Judge gave of the same
// snapshot. The worst come first: by class, then, of what grows, by rate, else by live bytes. It
// lowers the verdicts of sites whose line need not grow, see estimate.
//
// The line is the innermost one of the user's own code, as frames.Headline has it. Where a helper
// allocates for code that leaks and for code that does not, it is the innermost line that tells
// them apart, see package apart. Where a whole graph is kept, each line of its forward pass grows:
// the one with most memory in it comes first, and Advise names the lines that they have in common.
// What the threads of a backward pass allocate has no line; it comes after those that have one,
// unless it grows a hundred times as fast: the line that made the graph says more than the name of
// a gradient function.
func JudgeLines(s *ledger.Snapshot, verdicts []Verdict) []Group {
	j := newJudge(s, nil)
	at := map[groupKey]int{}
	var list []Group
	for i := range verdicts {
		x := &s.Sites[i]
		k := keyOf(x, &verdicts[i].Line)
		n, known := at[k]
		if !known {
			n = len(list)
			at[k] = n
			list = append(list, Group{Process: x.Process, Device: x.Device, Kind: x.Kind, Segment: x.Segment})
		}
		g := &list[n]
		g.Sites = append(g.Sites, i)
		g.LiveObjects += x.LiveObjects
		g.LiveBytes += x.LiveBytes
		g.AllocObjects += x.AllocObjects
		g.AllocBytes += x.AllocBytes
	}
	for i := range list {
		j.judgeGroup(&list[i], verdicts)
	}
	j.explain(list, verdicts)
	j.untilFull(list)
	slices.SortStableFunc(list, compareGroups)
	return list
}

func (j *judge) judgeGroup(g *Group, verdicts []Verdict) {
	slices.SortStableFunc(g.Sites, func(a, b int) int {
		u, v := &verdicts[a], &verdicts[b]
		return cmp.Or(
			cmp.Compare(max(v.Class, Cache), max(u.Class, Cache)), // harmless ones are alike
			cmp.Compare(v.Rate.Value, u.Rate.Value),
			cmp.Compare(j.s.Sites[b].LiveBytes, j.s.Sites[a].LiveBytes),
		)
	})
	first := &verdicts[g.Sites[0]]
	if len(g.Sites) == 1 {
		g.Verdict = *first
		return
	}
	segments := g.Segment && j.reports[g.Process]
	g.Verdict = j.judge(j.sum(g.Sites), segments)
	j.hearHolders(g.Process, g.Sites, &g.Verdict)
	if g.Class < first.Class && first.Class >= Growing && j.lineGrows(g, first) {
		// The other sites hide it: they come and go, and hold more.
		n := slices.IndexFunc(g.Sites, func(i int) bool { return verdicts[i].Class < first.Class })
		if n < 0 {
			n = len(g.Sites)
		}
		if g.Verdict = *first; n > 1 {
			v := j.judge(j.sum(g.Sites[:n]), segments)
			if j.hearHolders(g.Process, g.Sites[:n], &v); v.Class == first.Class {
				g.Verdict = v
			}
		}
	}
	g.Object, g.Line, g.Head, g.User = first.Object, first.Line, first.Head, first.User
	for _, i := range g.Sites {
		if verdicts[i].Object != g.Object {
			g.Object = j.mainObject(g, verdicts)
			break
		}
	}
}

// sum returns the sum of some sites.
func (j *judge) sum(sites []int) *ledger.Site {
	out := j.s.Sites[sites[0]]
	for _, i := range sites[1:] {
		x := &j.s.Sites[i]
		out.AddFigures(x)
		out.AddCohorts(x)
		out.AddPresumed(x)
	}
	return &out
}

// mainObject returns the kind of object that has most of the memory behind the group's verdict.
func (j *judge) mainObject(g *Group, verdicts []Verdict) Object {
	bytes := map[Object]uint64{}
	for _, i := range g.Sites {
		if max(verdicts[i].Class, Cache) == max(g.Class, Cache) {
			bytes[verdicts[i].Object] += j.s.Sites[i].LiveBytes
		}
	}
	best := objectUnknown
	for _, i := range g.Sites { // in a stable order
		if o := verdicts[i].Object; bytes[o] > bytes[best] {
			best = o
		}
	}
	return best
}

// lineless is how many times faster a group without a line must grow to precede one with a line.
const lineless = 100

// PerSecond returns by how many bytes a second a group grows; 0 where that may be nothing.
func (g *Group) PerSecond() float64 {
	if g.Class < Growing || g.Rate.Low <= 0 {
		return 0
	}
	return g.Rate.Value
}

func (g *Group) weight() float64 {
	switch {
	case g.Class < Growing:
		return float64(g.LiveBytes)
	case !g.User:
		return g.Rate.Value / lineless
	}
	return g.Rate.Value
}

func compareGroups(a, b Group) int {
	return cmp.Or(
		cmp.Compare(b.Class, a.Class),
		cmp.Compare(b.weight(), a.weight()),
		cmp.Compare(b.LiveBytes, a.LiveBytes),
		cmp.Compare(a.Process, b.Process),
		cmp.Compare(a.Device, b.Device),
		cmp.Compare(a.Line.File, b.Line.File),
		cmp.Compare(a.Line.Line, b.Line.Line),
		cmp.Compare(a.Line.Function, b.Line.Function),
	)
}
