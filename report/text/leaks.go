// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/ranks"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WriteLeaks writes the sites of report.Leaks with their stacks, failed allocations, the
// reconciliation with NVML, and doubts as footnotes.
func WriteLeaks(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	title(p, s, n)
	j := report.Judge(s, st)
	balancePart(p, s, j, o)
	verdictPart(p, s, j, o)
	leakSites(p, s, st, j, o, n)
	keptParts(p, s, n, o)
	wasteParts(p, s, o.Limit())
	failures(p, s, st, o)
	if rows := totalRows(p, s); len(rows) > 2 {
		totals(p, s, n)
	}
	torchTable(p, s)
	remarkLines(p, s, st)
	usageParts(p, s, n)
	systemPart(p, s)
	olderPart(p, s, o)
	footnotes(p, n)
	return p.writeTo(w)
}

func leakSites(p *page, s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement, o report.Options, n *notes) {
	gpu, managed, host := report.DivideLeaks(report.Leaks(s, o))
	sum := report.Sum(s, gpu)
	older := ""
	if o.Older > 0 {
		older = " older than " + o.Older.String()
	}
	p.line(plain, 0, "")
	if sum.Own.Sites == 0 {
		none := "No GPU memory allocated since the attach is live"
		if older != "" {
			none = "No live GPU memory" + older
		}
		p.text(bold, 0, format.Join(none, n.mark(report.AtTotals), n.mark(report.AtStacks)))
	} else {
		leakHead(p, "Live GPU memory"+older, &sum, n)
	}
	if sum.Imported.Sites > 0 {
		p.paragraph("", "not counted, as it is imported: "+sum.Imported.Text())
	}
	if sum := report.Ageless(s, o); sum.Sites > 0 {
		p.paragraph("", "not counted, as its age is unknown: "+sum.Text())
	}
	if cache := report.Sum(s, s.Sites).Cache; cache.Bytes > 0 {
		p.paragraph("", "not counted, as PyTorch keeps it for later tensors: "+format.Bytes(cache.Bytes)+" of cache")
	}
	book := lines.New(s, st, j)
	leakList(p, s, st, o, book, gpu, sum.Own.Bytes)
	asleepSites(p, s, st, o.Limit())
	cacheSites(p, s, st, o.Limit())
	for _, x := range []struct {
		name string
		list []ledger.Site
	}{{"Live managed memory", managed}, {"Live host memory", host}} {
		if len(x.list) > 0 {
			sum := report.Sum(s, x.list)
			p.line(plain, 0, "")
			leakHead(p, x.name+older, &sum, n)
			leakList(p, s, st, o, book, x.list, sum.Own.Bytes)
		}
	}
}

func leakHead(p *page, what string, sum *report.Sums, n *notes) {
	p.list(bold, 0, " ", format.Join(what+":", format.Bytes(sum.Own.Bytes)),
		format.Join("in", format.Count(sum.Own.Objects, "allocation"), n.mark(report.AtTotals)), format.Join("from", format.Count(sum.Own.Sites, "site"), n.mark(report.AtStacks)))
	if sum.Ended.Sites > 0 {
		p.paragraph("", "of which freed by the end of a process: "+sum.Ended.Text())
	}
}

func leakList(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options, book *lines.Book, sites []ledger.Site, sum uint64) {
	kept, list := report.KeptBy(s), book.Together(book.Rows(sites))
	for i := range list[:min(len(list), o.Limit())] {
		p.line(plain, 0, "")
		x := &list[i]
		leakLine(p, s, st, book.Jobs, kept, i+1, x, sum)
		leakStacks(p, st, o, x)
	}
	if len(list) > o.Limit() {
		p.line(plain, 0, "")
		p.text(plain, 0, moreText(s, list[o.Limit():])+" (-T shows more)")
	}
}

const siteIndent = 4

// leakLine writes a row without its stacks.
func leakLine(p *page, s *ledger.Snapshot, st callstack.Stacks, jobs *ranks.Jobs, kept []*report.Kept, rank int, r *lines.Row, sum uint64) {
	x := &r.Site
	siteHead(p, rank, r)
	amount := format.Count(x.LiveObjects, format.Noun(x.Kind))
	if report.InSums(x.Kind) && sum > 0 {
		amount = format.Share(report.Awake(x), sum) + " in " + amount
	}
	oldest := "age unknown"
	if ns, known := report.Age(s, x); known {
		oldest = "oldest " + format.Span(ns)
	}
	p.list(plain, siteIndent, ", ", amount, oldest)
	p.list(plain, siteIndent, ", ", rowOwner(s, jobs, r)...)
	p.list(plain, siteIndent, ", ", importedTexts(s, st, x)...)
	p.list(plain, siteIndent, " ", sparkline(x.History, min(sparkColumns, p.width-siteIndent)), rowGrowth(s, r))
	keptBelow(p, kept, jobs, r)
	p.marked(r.Marks)
}

// leakStacks writes the stacks of a row, where there are several each with its share. If the row is
// of several processes, they are those of the process that holds most.
func leakStacks(p *page, st callstack.Stacks, o report.Options, r *lines.Row) {
	sites, _ := r.First()
	for _, x := range sites[:min(len(sites), o.Limit())] {
		if len(sites) > 1 {
			p.text(plain, siteIndent, format.Bytes(report.Awake(x))+" in "+format.Count(x.LiveObjects, format.Noun(x.Kind))+":")
		}
		stack := frames.Visible(st, x.Stack, x.API)
		p.stack(stack, headOf(stack, &r.Frame))
	}
	if more := len(sites) - o.Limit(); more > 0 {
		p.text(plain, siteIndent, format.Count(uint64(more), "more stack")+" (-T shows more)")
	}
}

// headOf returns where a row's line is in a stack.
func headOf(stack []callstack.Frame, f *callstack.Frame) int {
	key := report.LineKeyOf(f)
	return slices.IndexFunc(stack, func(f callstack.Frame) bool { return report.LineKeyOf(&f) == key })
}

const sparkColumns = 24

// siteOwner returns who holds the memory, where, and by which call.
func siteOwner(s *ledger.Snapshot, x *ledger.Site) []string {
	process := &s.Processes[x.Process]
	owner := []string{format.Process(process)}
	if process.End != 0 {
		how := "end"
		if process.Replaced {
			how = "exec"
		}
		owner = append(owner, "freed by its "+how+" "+format.Span(report.Minus(s.End, process.End))+" ago")
	}
	owner = append(owner, report.WorkloadText(process.Workload)...)
	owner = append(owner, whereText(x.Device, x.Kind))
	if x.Kind == ledger.Tensor { // of one function, as all are
		return owner
	}
	return append(owner, report.CallText(x.API))
}

// whereText returns "cuda:0", "tensors on cuda:0", "async memory of cuda:0", "pinned host memory".
func whereText(device int32, kind ledger.Kind) string {
	at := format.Device(device, kind)
	if at == "unknown" || kind.OnHost() && device < 0 {
		at = "unknown device"
	}
	switch {
	case kind == ledger.Tensor:
		return "tensors on " + at
	case kind == ledger.Device:
		return at
	case kind.OnHost():
		return format.Kind(kind) + " host memory"
	}
	return format.Kind(kind) + " memory of " + at
}

// growthText returns "+128 MiB in the last 30s (256 MiB/min)", the growth in the second half of the
// session, or of a process that began in it; "" if that is too short.
func growthText(s *ledger.Snapshot, x *ledger.Site) string {
	return growthIn(x.Growth, s.GrowthSpan(x.Process))
}

// leastGrowth is the shortest time, in ns, of which growth is shown.
const leastGrowth = uint64(time.Second)

// growthIn returns "+128 MiB in the last 30s (256 MiB/min)", "steady", or "" for a time that is too
// short.
func growthIn(growth int64, over uint64) string {
	switch {
	case over < leastGrowth:
		return ""
	case growth == 0:
		return "steady"
	}
	return fmt.Sprintf("%s in the last %s (%s/min)", format.Difference(growth), format.Span(over), format.Difference(report.PerMinute(growth, over)))
}

func failures(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	if len(s.Failures) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Failed allocations")
	for i := range s.Failures {
		if i >= o.Limit() {
			p.line(plain, 0, "")
			p.text(plain, 0, fmt.Sprintf("%s (-T shows more)", format.Count(uint64(len(s.Failures)-i), "more site")))
			break
		}
		f := &s.Failures[i]
		stack := frames.Visible(st, f.Stack, f.API)
		own := frames.Headline(stack)
		p.line(plain, 0, "")
		p.headLine(red, fmt.Sprintf("%s× %s", humanize.Comma(int64(f.Count)), format.Result(f.Result)), stack[own])
		p.list(plain, siteIndent, ", ", "last one "+format.Bytes(f.LastBytes), format.Span(report.Minus(s.End, f.LastTime))+" ago",
			fmt.Sprintf("result %d", f.Result))
		process := &s.Processes[f.Process]
		owner := append([]string{format.Process(process)}, report.WorkloadText(process.Workload)...)
		p.list(plain, siteIndent, ", ", append(owner, whereText(f.Device, f.Kind), report.CallText(f.API))...)
		p.marked(report.FailureMarks(s, st, f))
		p.stack(stack, own)
	}
}

// markText returns "incomplete: 12 events of the process lost, …", or "" without marks.
func markText(marks []string) string {
	if len(marks) == 0 {
		return ""
	}
	return "incomplete: " + strings.Join(marks, "; ")
}

// marked writes marks below a row.
func (p *page) marked(marks []string) {
	if text := markText(marks); text != "" {
		p.paragraph(strings.Repeat(" ", siteIndent), text)
	}
}

// importedTexts returns "owned by server [700]", "allocated at serve.py:12 load" for each known
// owner.
func importedTexts(s *ledger.Snapshot, st callstack.Stacks, x *ledger.Site) (list []string) {
	for i := range x.Owners {
		w := &x.Owners[i]
		list = append(list, "owned by "+format.Process(&s.Processes[w.Process]), "allocated at "+report.LineText(st, w.Stack, w.API), report.CallText(w.API))
	}
	if x.MoreOwners {
		list = append(list, "and by others")
	}
	return list
}

// SiteLines returns one site as WriteLeaks writes it, with its whole stack. Rank is its number
// among others. No line is wider than width columns, at least 20. The judgement may be nil.
func SiteLines(s *ledger.Snapshot, st callstack.Stacks, j *report.Judgement, x *ledger.Site, rank, width int) []Line {
	book := lines.New(s, st, j)
	p, r := newPage(Screen{Width: width}), &book.Rows([]ledger.Site{*x})[0]
	leakLine(p, s, st, book.Jobs, report.KeptBy(s), rank, r, 0)
	leakStacks(p, st, report.Options{}, r)
	return p.lines
}

// gpusOf names the GPU of some sites, or counts their GPUs; "" if one is unknown.
func gpusOf(s *ledger.Snapshot, sites []*ledger.Site) string {
	var list []string
	for _, x := range sites {
		uuid := report.GPUUUID(s, x.Process, x.Device, x.Kind)
		if uuid == "" {
			return ""
		}
		if !slices.Contains(list, uuid) {
			list = append(list, uuid)
		}
	}
	if len(list) == 1 {
		if n := slices.IndexFunc(s.GPUs, func(g ledger.GPU) bool { return g.UUID == list[0] }); n >= 0 {
			return fmt.Sprintf("GPU %d", s.GPUs[n].Index)
		}
	}
	return format.Count(uint64(len(list)), "GPU")
}

func mostText(jobs *ranks.Jobs, r *lines.Row) string {
	if n := ranks.Most(r.Bytes()); n >= 0 {
		return "most in " + jobs.Names(r.Processes[n:n+1])
	}
	return ""
}

// rowOwner is siteOwner of a row, which may be of several processes.
func rowOwner(s *ledger.Snapshot, jobs *ranks.Jobs, r *lines.Row) []string {
	if r.Processes == nil {
		return siteOwner(s, &r.Site)
	}
	w := s.Processes[r.Process].Workload
	w.Rank, w.LocalRank = "", ""
	list := []string{jobs.Text(r.Processes), ranks.Between(r.Bytes()) + " each", mostText(jobs, r)}
	list = append(append(list, report.WorkloadText(w)...), gpusOf(s, r.Pointers()))
	if r.Kind != ledger.Tensor {
		list = append(list, report.CallText(r.API))
	}
	return list
}

// rowGrowth returns "" where the processes of a row grew over different times.
func rowGrowth(s *ledger.Snapshot, r *lines.Row) string {
	for _, i := range r.Processes {
		if s.GrowthSpan(i) != s.GrowthSpan(r.Process) {
			return ""
		}
	}
	return growthText(s, &r.Site)
}

// keptBelow writes who keeps a row, in the process that holds most of it.
func keptBelow(p *page, kept []*report.Kept, jobs *ranks.Jobs, r *lines.Row) {
	sites, live := r.First()
	name := ""
	if r.Processes != nil {
		name = jobs.Names([]int{r.Process}) + ": "
	}
	p.keptLine(name, kept[r.Process].OfSites(sites), live)
}
