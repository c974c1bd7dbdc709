// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WriteStats writes all allocations by call and by size, and the sites that keep allocating and
// freeing.
func WriteStats(w io.Writer, s *ledger.Snapshot, sizes *timeline.Sizes, st callstack.Stacks, o report.Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	viewTitle(p, s, n, o)
	seconds := seconds(s, o)
	p.line(plain, 0, "")
	p.text(bold, 0, format.Join("Calls", n.mark(report.AtTotals)))
	p.line(plain, 0, "")
	narrow := p.width < callFigures+leastCall
	if !narrow {
		p.line(dim, 0, format.Pad("allocations", -13)+format.Pad("per s", -9)+format.Pad("bytes", -10)+format.Pad("freed", -13)+"  call")
	}
	for _, c := range report.CallCounts(s, o.Since) {
		if narrow {
			p.text(plain, 0, report.CallText(c.API)+" ("+c.Kind+")")
			p.list(dim, siteIndent, ", ", format.Count(c.Allocs, "allocation"), humanize.CommafWithDigits(float64(c.Allocs)/seconds, 1)+" per s",
				format.Bytes(c.Bytes), humanize.Comma(int64(c.Freed))+" freed")
			continue
		}
		p.line(plain, 0, format.Pad(humanize.Comma(int64(c.Allocs)), -13)+format.Pad(humanize.CommafWithDigits(float64(c.Allocs)/seconds, 1), -9)+
			format.Pad(format.Bytes(c.Bytes), -10)+format.Pad(humanize.Comma(int64(c.Freed)), -13)+"  "+report.CallText(c.API)+" ("+c.Kind+")")
	}
	if sizes != nil {
		sizeTable(p, "Allocations from CUDA by size", &sizes.Driver)
		sizeTable(p, "Tensors by size", &sizes.Tensors)
	}
	churnList(p, s, st, o)
	if text := report.CostText(s); text != "" {
		p.line(plain, 0, "")
		p.paragraph("", text)
	}
	footnotes(p, n)
	return p.writeTo(w)
}

// seconds returns the length of the session or interval.
func seconds(s *ledger.Snapshot, o report.Options) float64 {
	from := s.Begin
	if o.Since != nil {
		from = o.Since.End
	}
	return float64(max(report.Minus(s.End, from), 1)) / 1e9
}

// Columns of the figures of a call and of a size, and the least columns beside them for the call
// and for the bar.
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
		p.line(dim, 0, format.Pad("from", -10)+format.Pad("number", -13)+format.Pad("bytes", -10))
	}
	for i := first; i <= last; i++ {
		b := list[i]
		if b.Count == 0 {
			continue
		}
		if room < leastBar {
			p.list(plain, 0, ", ", "from "+format.Bytes(1<<i)+": "+humanize.Comma(int64(b.Count)), format.Bytes(b.Bytes))
			continue
		}
		bar := strings.Repeat("█", int(float64(b.Count)/float64(most)*float64(room)+0.5))
		if bar == "" {
			bar = "▏"
		}
		p.line(plain, 0, format.Pad(format.Bytes(1<<i), -10)+format.Pad(humanize.Comma(int64(b.Count)), -13)+format.Pad(format.Bytes(b.Bytes), -10)+"  "+bar)
	}
}

func churnList(p *page, s *ledger.Snapshot, st callstack.Stacks, o report.Options) {
	list := report.Churning(s, o.Since)
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "Repeatedly allocated and freed")
	for i, c := range list[:min(len(list), o.Limit())] {
		x := c.Site
		stack := frames.Visible(st, x.Stack, x.API)
		p.line(plain, 0, "")
		p.headLine(plain, format.Pad(fmt.Sprintf("%d.", i+1), siteIndent)+format.Pad(humanize.Comma(int64(c.Freed))+"×", 8), stack[frames.Headline(stack)])
		p.list(plain, siteIndent, ", ", format.Bytes(c.Bytes/max(c.Allocs, 1))+" each on average",
			format.Bytes(uint64(float64(c.Bytes)/seconds(s, o)))+"/s", format.Process(&s.Processes[x.Process]), report.CallText(x.API))
	}
}
