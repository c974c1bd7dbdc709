// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// callCount sums what one function allocated.
type callCount struct {
	api, kind            string
	allocs, bytes, freed uint64
}

// callCounts is the mix of calls, by bytes; of those after before, if that is not nil.
func callCounts(s, before *ledger.Snapshot) []callCount {
	at := map[[2]string]int{}
	var list []callCount
	of := func(x *ledger.Site) *callCount {
		key := [2]string{untrusted.Clean(x.API), KindName(x.Kind)}
		k, ok := at[key]
		if !ok {
			k = len(list)
			at[key] = k
			list = append(list, callCount{api: key[0], kind: key[1]})
		}
		return &list[k]
	}
	for i := range s.Sites {
		x := &s.Sites[i]
		c := of(x)
		c.allocs += x.AllocObjects
		c.bytes += x.AllocBytes
		c.freed += minus(x.AllocObjects, x.LiveObjects)
	}
	if before != nil {
		for i := range before.Sites {
			x := &before.Sites[i]
			c := of(x)
			c.allocs = minus(c.allocs, x.AllocObjects)
			c.bytes = minus(c.bytes, x.AllocBytes)
			c.freed = minus(c.freed, minus(x.AllocObjects, x.LiveObjects))
		}
		list = slices.DeleteFunc(list, func(c callCount) bool { return c.allocs+c.freed == 0 })
	}
	slices.SortFunc(list, func(a, b callCount) int {
		return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.api, b.api), cmp.Compare(a.kind, b.kind))
	})
	return list
}

// churn is a site that allocates and frees over and over.
type churn struct {
	site                    *ledger.Site
	freed                   uint64 // objects
	allocs, bytes, freedSum uint64 // allocated, the bytes of these, and bytes that were freed
}

func churnOf(x *ledger.Site) churn {
	return churn{x, minus(x.AllocObjects, x.LiveObjects), x.AllocObjects, x.AllocBytes, minus(x.AllocBytes, x.LiveBytes)}
}

// churnKey is a site of one process in several snapshots of a recording.
type churnKey struct {
	pid    uint32
	begin  uint64
	stack  uint64
	api    string
	kind   ledger.Kind
	device int32
}

func churnKeyOf(s *ledger.Snapshot, x *ledger.Site) churnKey {
	p := &s.Processes[x.Process]
	return churnKey{p.PID, p.Begin, x.Stack, x.API, x.Kind, x.Device}
}

// leastChurn is how often memory must have been given back before it is news.
const leastChurn = 16

// churning lists sites by the bytes that they allocated and freed again. Tensors are left out: PyTorch's
// allocator is there for that. What was before is left out, if that is not nil.
func churning(s, before *ledger.Snapshot) []churn {
	earlier := map[churnKey]churn{}
	if before != nil {
		for i := range before.Sites {
			x := &before.Sites[i]
			earlier[churnKeyOf(before, x)] = churnOf(x)
		}
	}
	var list []churn
	for i := range s.Sites {
		x := &s.Sites[i]
		c, old := churnOf(x), earlier[churnKeyOf(s, x)]
		c.freed, c.freedSum = minus(c.freed, old.freed), minus(c.freedSum, old.freedSum)
		c.allocs, c.bytes = minus(c.allocs, old.allocs), minus(c.bytes, old.bytes)
		if c.freed >= leastChurn && x.Kind != ledger.Tensor && counts(x.Kind) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b churn) int { return cmp.Compare(b.freedSum, a.freedSum) })
	return list
}

// WriteStats writes what was allocated over all: by call, by size, and who allocates and frees over and over.
func WriteStats(w io.Writer, s *ledger.Snapshot, sizes *timeline.Sizes, st callstack.Stacks, o Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: doubts(s)}
	viewTitle(p, s, n, o)
	seconds := seconds(s, o)
	p.line(plain, 0, "")
	p.text(bold, 0, words("Calls", n.mark(atTotals)))
	p.line(plain, 0, "")
	narrow := p.width < callFigures+leastCall
	if !narrow {
		p.line(dim, 0, pad("allocations", -13)+pad("per s", -9)+pad("bytes", -10)+pad("freed", -13)+"  call")
	}
	for _, c := range callCounts(s, o.Since) {
		if narrow {
			p.text(plain, 0, c.api+" ("+c.kind+")")
			p.list(dim, siteIndent, ", ", counted(c.allocs, "allocation"), humanize.CommafWithDigits(float64(c.allocs)/seconds, 1)+" per s",
				BytesText(c.bytes), humanize.Comma(int64(c.freed))+" freed")
			continue
		}
		p.line(plain, 0, pad(humanize.Comma(int64(c.allocs)), -13)+pad(humanize.CommafWithDigits(float64(c.allocs)/seconds, 1), -9)+
			pad(BytesText(c.bytes), -10)+pad(humanize.Comma(int64(c.freed)), -13)+"  "+c.api+" ("+c.kind+")")
	}
	if sizes != nil {
		sizeTable(p, "Driver allocations by size", &sizes.Driver)
		sizeTable(p, "Tensors by size", &sizes.Tensors)
	}
	churnList(p, s, st, o)
	footnotes(p, n)
	return p.writeTo(w)
}

// seconds is how long what is shown took.
func seconds(s *ledger.Snapshot, o Options) float64 {
	from := s.Begin
	if o.Since != nil {
		from = o.Since.End
	}
	return float64(max(minus(s.End, from), 1)) / 1e9
}

// Columns of the figures of a call and of a size, and what must be left beside them for the call and for the bar.
const (
	callFigures, leastCall = 13 + 9 + 10 + 13 + 2, 12
	sizeFigures, leastBar  = 10 + 13 + 10 + 2, 1
)

func sizeTable(p *page, title string, list *[timeline.SizeBuckets]timeline.Bucket) {
	var most uint64
	first, last := -1, 0
	for i, b := range list {
		if b.Count > 0 {
			most, last = max(most, b.Count), i
			if first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, title)
	p.line(plain, 0, "")
	room := p.width - sizeFigures
	if room >= leastBar {
		p.line(dim, 0, pad("from", -10)+pad("number", -13)+pad("bytes", -10))
	}
	for i := first; i <= last; i++ {
		b := list[i]
		if b.Count == 0 {
			continue
		}
		if room < leastBar {
			p.list(plain, 0, ", ", "from "+BytesText(1<<i)+": "+humanize.Comma(int64(b.Count)), BytesText(b.Bytes))
			continue
		}
		bar := strings.Repeat("█", int(float64(b.Count)/float64(most)*float64(room)+0.5))
		if bar == "" {
			bar = "▏"
		}
		p.line(plain, 0, pad(BytesText(1<<i), -10)+pad(humanize.Comma(int64(b.Count)), -13)+pad(BytesText(b.Bytes), -10)+"  "+bar)
	}
}

func churnList(p *page, s *ledger.Snapshot, st callstack.Stacks, o Options) {
	list := churning(s, o.Since)
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Allocated and freed over and over")
	for i, c := range list[:min(len(list), o.top())] {
		x := c.site
		stack := frames.Visible(st, x.Stack, x.API)
		p.line(plain, 0, "")
		p.headLine(plain, pad(fmt.Sprintf("%d.", i+1), siteIndent)+pad(humanize.Comma(int64(c.freed))+"×", 8), stack[frames.Headline(stack)])
		p.list(plain, siteIndent, ", ", BytesText(c.bytes/max(c.allocs, 1))+" each on average",
			BytesText(uint64(float64(c.bytes)/seconds(s, o)))+"/s", processName(&s.Processes[x.Process]), untrusted.Clean(x.API))
	}
}
