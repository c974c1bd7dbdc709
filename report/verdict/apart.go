// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"slices"

	"github.com/vramprof/vramprof/report/apart"
)

// tellApart moves the headlines of lines that leak for some callers and not for others. Where a
// whole line grows, or may grow, nothing is proven of callers, and its headlines stay.
func (j *judge) tellApart(list []Verdict) {
	sites, order := map[groupKey][]int{}, []groupKey(nil)
	for i := range list {
		x := &j.s.Sites[i]
		if !list[i].User || x.Segment && j.reports[x.Process] {
			continue
		}
		k := keyOf(x, &list[i].Line)
		if sites[k] == nil {
			order = append(order, k)
		}
		sites[k] = append(sites[k], i)
	}
	for _, k := range order {
		if of := sites[k]; isMixed(list, of) {
			j.tellLineApart(list, of)
		}
	}
}

// isMixed reports whether some sites may leak, and some not.
func isMixed(list []Verdict, sites []int) bool {
	grow := 0
	for _, i := range sites {
		if list[i].Class >= Growing {
			grow++
		}
	}
	return grow > 0 && grow < len(sites)
}

// caller is the sites of a line that have the same own lines in their stacks: what libraries do in
// between makes several stacks of one.
type caller struct {
	path  apart.Path
	sites []int
	class Class
}

func (j *judge) tellLineApart(list []Verdict, sites []int) {
	callers := j.callers(sites)
	if len(callers) < 2 || j.classOf(list, sites) < Leaking {
		return
	}
	least := Growing // where only the sum of callers leaks, those that grow are the leak
	for i := range callers {
		c := &callers[i]
		if c.class = j.classOf(list, c.sites); c.class == Leaking {
			least = Leaking
		}
	}
	paths, of := make([]apart.Path, len(callers)), make([]apart.Evidence, len(callers))
	for i := range callers {
		c := &callers[i]
		paths[i] = c.path
		switch {
		case c.class >= least:
			of[i] = apart.Leaks
		case c.class < Growing && j.isKnown(c.sites):
			of[i] = apart.Frees
		}
	}
	for i, k := range apart.Heads(paths, of) {
		for _, site := range callers[i].sites {
			if k > 0 {
				stack := j.stack(&j.s.Sites[site])
				list[site].headed(stack, apart.Of(stack)[k].At)
			}
		}
	}
}

// callers groups sites by their own lines, in the order of sites.
func (j *judge) callers(sites []int) (list []caller) {
	at := map[string]int{}
	for _, i := range sites {
		path := apart.Of(j.stack(&j.s.Sites[i]))
		key := path.Key()
		n, ok := at[key]
		if !ok {
			n = len(list)
			at[key] = n
			list = append(list, caller{path: path})
		}
		list[n].sites = append(list[n].sites, i)
	}
	return list
}

// classOf returns the class of the sum of some sites of one line.
func (j *judge) classOf(list []Verdict, sites []int) Class {
	x := &j.s.Sites[sites[0]]
	g := Group{Process: x.Process, Device: x.Device, Kind: x.Kind, Segment: x.Segment, Sites: slices.Clone(sites)}
	j.judgeGroup(&g, list)
	return g.Class
}

// isKnown reports whether allocations of some sites were seen, so that their class says something.
func (j *judge) isKnown(sites []int) bool {
	for _, i := range sites {
		if len(j.s.Sites[i].Cohorts) > 0 {
			return true
		}
	}
	return false
}
