// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Leaks returns the sites that hold live memory whose oldest allocation is at
// least o.Older old (one of unknown age is not), largest first: of GPU memory, then those of imported memory, of managed memory, and of host memory. Memory that
// an ended process never freed counts, with its age at that end. Segments out of which PyTorch's allocator
// gives tensors are no leaks, nor is what they hold beyond them: that is kept for later tensors, and a leak shows in
// those. Tensors asleep hold no memory, and sites with no others are left out. The sites are shared with the snapshot.
func Leaks(s *ledger.Snapshot, o Options) []ledger.Site {
	var list, imported, managed, host []ledger.Site
	reports := reporters(s)
	for i := range s.Sites {
		x := &s.Sites[i]
		switch {
		case !holds(x, reports) || !isOlder(s, x, o.Older):
		case onHost(x):
			host = append(host, *x)
		case apart(x):
			managed = append(managed, *x)
		case counts(x.Kind):
			list = append(list, *x)
		default:
			imported = append(imported, *x)
		}
	}
	if asleepSum(s) > 0 {
		slices.SortStableFunc(list, func(a, b ledger.Site) int { return cmp.Compare(awake(&b), awake(&a)) })
	}
	return slices.Concat(list, imported, managed, host)
}

// holds reports whether a site holds live memory that could be a leak.
func holds(x *ledger.Site, reports []bool) bool {
	return x.LiveObjects > 0 && (x.Asleep == 0 || awake(x) > 0) && planeOf(x, reports) != PlaneCache
}

// age returns the age of the oldest live allocation in ns, at the end of its process or of the session. It is not known where
// the sample has none of those that live.
func age(s *ledger.Snapshot, x *ledger.Site) (ns uint64, known bool) {
	if x.Oldest == 0 {
		return 0, false
	}
	return minus(cmp.Or(s.Processes[x.Process].End, s.End), x.Oldest), true
}

func isOlder(s *ledger.Snapshot, x *ledger.Site, older time.Duration) bool {
	ns, known := age(s, x)
	return older <= 0 || known && ns >= uint64(older)
}

// ageless sums the GPU memory that a choice by age leaves out because its age is unknown.
func ageless(s *ledger.Snapshot, o Options) (sum amount) {
	reports := reporters(s)
	for i := range s.Sites {
		x := &s.Sites[i]
		if _, known := age(s, x); o.Older > 0 && !known && holds(x, reports) && counts(x.Kind) && !onHost(x) && !apart(x) {
			sum.add(x)
		}
	}
	return sum
}

// WriteLeaks writes the sites of Leaks with their stacks, failed allocations, the
// reconciliation with NVML, and doubts as footnotes, in lines of at most o.Width columns.
func WriteLeaks(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: doubts(s)}
	title(p, s, n)
	verdictPart(p, s, judge(s, st), o.top())
	leakSites(p, s, st, o, n)
	failures(p, s, st, o)
	if rows := totalRows(p, s); len(rows) > 2 {
		totals(p, s, n)
	}
	torchTable(p, s)
	remarkLines(p, s, st)
	usageParts(p, s, n)
	footnotes(p, n)
	return p.writeTo(w)
}

func leakSites(p *page, s *ledger.Snapshot, st callstack.Stacks, o Options, n *notes) {
	gpu, managed, host := divided(Leaks(s, o))
	sum := sumOf(s, gpu)
	older := ""
	if o.Older > 0 {
		older = " older than " + o.Older.String()
	}
	p.line(plain, 0, "")
	if sum.own.sites == 0 {
		p.text(bold, 0, words("No live GPU memory"+older, n.mark(atTotals), n.mark(atStacks)))
	} else {
		leakHead(p, "Live GPU memory"+older, &sum, n)
	}
	if sum.imported.sites > 0 {
		p.paragraph("", "not counted, as it is imported: "+sum.imported.text())
	}
	if sum := ageless(s, o); sum.sites > 0 {
		p.paragraph("", "not counted, as its age is unknown: "+sum.text())
	}
	if cache := sumOf(s, s.Sites).cache; cache.bytes > 0 {
		p.paragraph("", "not counted, as PyTorch keeps it for later tensors: "+BytesText(cache.bytes)+" of cache")
	}
	leakList(p, s, st, o, gpu, sum.own.bytes)
	asleepSites(p, s, st, o.top())
	cacheSites(p, s, st, o.top())
	for _, x := range []struct {
		name string
		list []ledger.Site
	}{{"Live managed memory", managed}, {"Live host memory", host}} {
		if len(x.list) > 0 {
			sum := sumOf(s, x.list)
			p.line(plain, 0, "")
			leakHead(p, x.name+older, &sum, n)
			leakList(p, s, st, o, x.list, sum.own.bytes)
		}
	}
}

func leakHead(p *page, what string, sum *amounts, n *notes) {
	p.list(bold, 0, " ", words(what+":", BytesText(sum.own.bytes)),
		words("in", counted(sum.own.objects, "allocation"), n.mark(atTotals)), words("from", counted(sum.own.sites, "site"), n.mark(atStacks)))
	if sum.ended.sites > 0 {
		p.paragraph("", "of which freed by the end of a process: "+sum.ended.text())
	}
}

func leakList(p *page, s *ledger.Snapshot, st callstack.Stacks, o Options, list []ledger.Site, sum uint64) {
	for i := range list[:min(len(list), o.top())] {
		p.line(plain, 0, "")
		leakSite(p, s, st, o, i+1, &list[i], sum)
	}
	if len(list) > o.top() {
		p.line(plain, 0, "")
		p.text(plain, 0, moreText(s, list[o.top():])+" (-T shows more)")
	}
}

const siteIndent = 4

func leakSite(p *page, s *ledger.Snapshot, st callstack.Stacks, o Options, rank int, x *ledger.Site, sum uint64) {
	stack := frames.Visible(st, x.Stack, x.API)
	own := frames.Headline(stack)
	siteHead(p, rank, x, stack[own])
	amount := counted(x.LiveObjects, noun(x.Kind))
	if counts(x.Kind) && sum > 0 {
		amount = fmt.Sprintf("%.1f%% in %s", 100*float64(awake(x))/float64(sum), amount)
	}
	oldest := "age unknown"
	if ns, known := age(s, x); known {
		oldest = "oldest " + span(ns)
	}
	p.list(plain, siteIndent, ", ", amount, oldest)
	p.list(plain, siteIndent, ", ", siteOwner(s, x)...)
	p.list(plain, siteIndent, ", ", importedTexts(s, st, x)...)
	p.list(plain, siteIndent, " ", sparkline(x.History, min(sparkColumns, p.width-siteIndent)), growthText(s, x))
	p.marked(Marks(s, st, x))
	p.stack(stack, own)
}

const sparkColumns = 24

// siteOwner is who holds the memory, where, and by which call.
func siteOwner(s *ledger.Snapshot, x *ledger.Site) []string {
	process := &s.Processes[x.Process]
	owner := []string{processName(process)}
	if process.End != 0 {
		how := "end"
		if process.Replaced {
			how = "exec"
		}
		owner = append(owner, "freed by its "+how+" "+span(minus(s.End, process.End))+" ago")
	}
	owner = append(owner, WorkloadText(process.Workload)...)
	owner = append(owner, whereText(x.Device, x.Kind))
	if x.Kind == ledger.Tensor { // of one function, as all are
		return owner
	}
	return append(owner, untrusted.Clean(x.API))
}

func noun(k ledger.Kind) string {
	if k == ledger.Tensor {
		return "tensor"
	}
	return "allocation"
}

// whereText is "cuda:0", "tensors on cuda:0", "async memory of cuda:0", "pinned host memory".
func whereText(device int32, kind ledger.Kind) string {
	at := DeviceName(device, kind)
	if at == "unknown" || kind.OnHost() && device < 0 {
		at = "unknown device"
	}
	switch {
	case kind == ledger.Tensor:
		return "tensors on " + at
	case kind == ledger.Device:
		return at
	case kind.OnHost():
		return KindName(kind) + " host memory"
	}
	return KindName(kind) + " memory of " + at
}

// growthText is "+128 MiB in the last 30s (256 MiB/min)": Growth is that of the second half.
func growthText(s *ledger.Snapshot, x *ledger.Site) string {
	half := (s.End - s.Begin) / 2
	if x.Growth == 0 || half == 0 {
		return "steady"
	}
	return fmt.Sprintf("%s in the last %s (%s/min)", signedBytes(x.Growth), span(half), signedBytes(perMinute(x.Growth, half)))
}

func perMinute(growth int64, ns uint64) int64 {
	if ns == 0 {
		return 0
	}
	return int64(float64(growth) * float64(time.Minute) / float64(ns))
}

func failures(p *page, s *ledger.Snapshot, st callstack.Stacks, o Options) {
	if len(s.Failures) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Failed allocations")
	for i := range s.Failures {
		if i >= o.top() {
			p.line(plain, 0, "")
			p.text(plain, 0, fmt.Sprintf("%s (-T shows more)", counted(uint64(len(s.Failures)-i), "more site")))
			break
		}
		f := &s.Failures[i]
		stack := frames.Visible(st, f.Stack, f.API)
		own := frames.Headline(stack)
		p.line(plain, 0, "")
		p.headLine(red, fmt.Sprintf("%s× %s", humanize.Comma(int64(f.Count)), resultName(f.Result)), stack[own])
		p.list(plain, siteIndent, ", ", "last one "+BytesText(f.LastBytes), span(minus(s.End, f.LastTime))+" ago",
			fmt.Sprintf("result %d", f.Result))
		process := &s.Processes[f.Process]
		owner := append([]string{processName(process)}, WorkloadText(process.Workload)...)
		p.list(plain, siteIndent, ", ", append(owner, whereText(f.Device, f.Kind), untrusted.Clean(f.API))...)
		p.marked(failureMarks(s, st, f))
		p.stack(stack, own)
	}
}
