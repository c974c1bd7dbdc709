// SPDX-License-Identifier: Apache-2.0

// Package lines sums the sites of one line of code, which a report shows as one row. A line has
// several sites if libraries below it take different paths.
package lines

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Row is a line of code, with what one process allocated there of one kind on one device, or what
// several processes of a job did.
type Row struct {
	ledger.Site               // the sum; its Stack is that of Sites[0], its API names all
	Sites       []ledger.Site // most live bytes first
	Frame       callstack.Frame
	Calls       []apart.Call // by what its stacks differ, nil if by nothing
	Module      string       // whose parameters, buffers or gradients most of it is: see report.Kept.ModuleOf
	Marks       []string     // see report.Marks
	Processes   []int        // sorted, of a row of several processes; else nil: see Book.Together
}

type key struct {
	report.LineKey
	process int
	device  int32
	kind    ledger.Kind
	segment bool
	stack   uint64 // of a site whose line is not known: it may be another one
}

// Book makes rows of one snapshot.
type Book struct {
	s    *ledger.Snapshot
	st   callstack.Stacks
	j    *report.Judgement
	kept []*report.Kept
	Jobs *ranks.Jobs
}

// New returns the book of a snapshot. The headlines of sites are those of the judgement, which may
// be nil: see Judgement.Headline.
func New(s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement) *Book {
	return &Book{s, st, j, report.KeptBy(s), ranks.New(s)}
}

// Rows sums sites of the snapshot by line. Rows with most that is awake come
// first, those of imported memory last.
func (b *Book) Rows(list []ledger.Site) []Row {
	at := map[key]int{}
	var rows []Row
	for i := range list {
		x := &list[i]
		stack, head := b.j.Headline(b.s, b.st, x)
		k := key{report.LineKeyOf(&stack[head]), x.Process, x.Device, x.Kind, x.Segment, 0}
		if f := &stack[head]; f.File == "" && f.Mapping == nil {
			k.stack = x.Stack
		}
		n, ok := at[k]
		if !ok {
			n = len(rows)
			at[k] = n
			rows = append(rows, Row{Frame: stack[head]})
		}
		rows[n].Sites = append(rows[n].Sites, *x)
	}
	for i := range rows {
		b.sum(&rows[i])
		rows[i].Calls = b.calls(rows[i].Sites)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Compare(counted(&b.Site), counted(&a.Site))
	})
	return rows
}

func (b *Book) calls(sites []ledger.Site) []apart.Call {
	var calls apart.Calls
	for i := range sites[:min(len(sites), apart.MostStacks)] {
		stack, head := b.j.Headline(b.s, b.st, &sites[i])
		calls.Add(stack, head, sites[i].LiveBytes)
	}
	return calls.Names()
}

// counted returns the bytes that rows are sorted by: none of memory that is another's.
func counted(x *ledger.Site) int64 {
	if !report.InSums(x.Kind) {
		return -1
	}
	return int64(report.Awake(x))
}

// sum sets what follows from the sites.
func (b *Book) sum(r *Row) {
	slices.SortStableFunc(r.Sites, func(a, b ledger.Site) int { return cmp.Compare(b.LiveBytes, a.LiveBytes) })
	r.Site = r.Sites[0]
	r.Owners = slices.Clone(r.Owners)
	r.Peak = 0 // sites have theirs at different moments
	apis := []string{r.API}
	for i := range r.Sites {
		x := &r.Sites[i]
		for _, mark := range report.Marks(b.s, b.st, x) {
			if !slices.Contains(r.Marks, mark) {
				r.Marks = append(r.Marks, mark)
			}
		}
		if i == 0 {
			continue
		}
		r.AddFigures(x)
		r.History = added(r.History, x.History)
		r.MoreOwners = r.MoreOwners || x.MoreOwners
		for _, o := range x.Owners {
			if !slices.Contains(r.Owners, o) {
				r.Owners = append(r.Owners, o)
			}
		}
		if !slices.Contains(apis, x.API) {
			apis = append(apis, x.API)
		}
	}
	r.API = strings.Join(apis[:min(len(apis), mostAPIs)], ", ")
	r.Module = b.kept[r.Process].ModuleOf(r.Pointers())
}

const mostAPIs = 4

// Pointers returns the sites of the row, for report.Kept.
func (r *Row) Pointers() (list []*ledger.Site) {
	for i := range r.Sites {
		list = append(list, &r.Sites[i])
	}
	return list
}

// added returns the sum of two histories. They cover the same time if they are as long, else the
// shorter one began later.
func added(a, b []uint64) []uint64 {
	if len(a) < len(b) {
		a, b = b, a
	}
	sum, from := slices.Clone(a), len(a)-len(b)
	for i, n := range b {
		sum[from+i] += n
	}
	return sum
}
