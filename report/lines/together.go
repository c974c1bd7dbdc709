// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Together joins the rows of one line in several processes of a job, if the verdict is the same of
// them. The sums stay those of all sites; Process and Device are those of the process with most.
func (b *Book) Together(list []Row) (rows []Row) {
	type joined struct {
		report.LineKey
		job     int
		kind    ledger.Kind
		segment bool
		class   verdict.Class
		alone   int // index of a row that is not joined, plus 1
	}
	at, classes := map[joined][]int{}, b.classes()
	keys := make([]joined, len(list))
	for i := range list {
		r := &list[i]
		keys[i] = joined{report.LineKeyOf(&r.Frame), b.Jobs.Of(r.Process), r.Kind, r.Segment, classes[b.s.IDOf(&r.Sites[0])], 0}
		unknown := r.Stack != 0 && r.Frame.File == "" && r.Frame.Mapping == nil
		if unknown || !report.InSums(r.Kind) { // it may be another line, or of other owners
			keys[i].alone = i + 1
		}
		at[keys[i]] = append(at[keys[i]], i)
	}
	for i := range list {
		k := at[keys[i]]
		r := list[i]
		if of := processesOf(list, k); len(of) > 1 {
			if k[0] != i {
				continue
			}
			r.join(list, k)
			r.Processes = of
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(counted(&b.Site), counted(&a.Site)) })
	return rows
}

// classes returns the verdicts by which rows are told apart: see ranks.Alike. There are none
// without a judgement.
func (b *Book) classes() map[ledger.SiteID]verdict.Class {
	if b.j == nil {
		return nil
	}
	classes := map[ledger.SiteID]verdict.Class{}
	for i := range b.j.Groups {
		for _, n := range b.j.Groups[i].Sites {
			classes[b.s.IDOf(&b.s.Sites[n])] = ranks.Alike(b.j.Groups[i].Class)
		}
	}
	return classes
}

func processesOf(list []Row, indices []int) (processes []int) {
	for _, i := range indices {
		processes = append(processes, list[i].Process)
	}
	slices.Sort(processes)
	return slices.Compact(processes)
}

// join adds rows of other processes and devices to the first.
func (r *Row) join(list []Row, indices []int) {
	r.Sites, r.Marks = slices.Clone(r.Sites), slices.Clone(r.Marks)
	for _, i := range indices[1:] {
		x := &list[i]
		r.AddFigures(&x.Site)
		r.History = added(r.History, x.History)
		r.Sites = append(r.Sites, x.Sites...)
		for _, mark := range x.Marks {
			if !slices.Contains(r.Marks, mark) {
				r.Marks = append(r.Marks, mark)
			}
		}
	}
}

// Of returns the processes of a row.
func (r *Row) Of() []int {
	if r.Processes == nil {
		return []int{r.Process}
	}
	return r.Processes
}

// First returns the row as it is in its first process alone, which holds most.
func (r *Row) First() (sites []*ledger.Site, live uint64) {
	for i := range r.Sites {
		if x := &r.Sites[i]; x.Process == r.Process {
			sites, live = append(sites, x), live+x.LiveBytes
		}
	}
	return sites, live
}

// Bytes returns what each of Processes holds.
func (r *Row) Bytes() []uint64 {
	list := make([]uint64, len(r.Processes))
	for i := range r.Sites {
		if n, ok := slices.BinarySearch(r.Processes, r.Sites[i].Process); ok {
			list[n] += report.Awake(&r.Sites[i])
		}
	}
	return list
}
