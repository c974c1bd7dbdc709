// SPDX-License-Identifier: Apache-2.0

package text

import (
	"cmp"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/fragmentation"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/lines"
	"github.com/vramprof/vramprof/report/pools"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// WriteCache writes the cache of PyTorch's allocators: which lines of code keep it from the driver,
// and which made it grow.
func WriteCache(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, o report.Options, screen Screen) error {
	p := newPage(screen)
	n := &notes{doubts: report.Doubts(s)}
	viewTitle(p, s, n, o)
	torchTable(p, s)
	allocatorParts(p, s, st, o.Limit())
	list := report.StuckCaches(s, st)
	for i := range list {
		stuckPart(p, s, &list[i], o.Limit())
	}
	if len(list) == 0 {
		p.line(plain, 0, "")
		p.paragraph("", "No process has a cache of PyTorch that is known: it exists from the first segment that was allocated since the attach.")
	}
	cacheSites(p, s, st, o.Limit())
	footnotes(p, n)
	return p.writeTo(w)
}

// maxSummaryStuck is how many allocators, and lines of each, a summary explains.
const maxSummaryStuck = 3

// stuckParts writes what keeps the caches from the driver that matter.
func stuckParts(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	more, free := 0, uint64(0)
	shown := 0
	for _, c := range report.StuckCaches(s, st) {
		switch {
		case !c.Matters() || c.Ended:
		case shown < maxSummaryStuck:
			shown++
			stuckPart(p, s, &c, min(top, maxSummaryStuck))
		default:
			more++
			free += c.Free
		}
	}
	if more > 0 {
		p.text(plain, siteIndent, format.Count(uint64(more), "more allocator")+" with "+format.Bytes(free)+" (--view cache)")
	}
}

// stuckPart writes what keeps one allocator's cache from the driver.
func stuckPart(p *page, s *ledger.Snapshot, c *report.StuckCache, top int) {
	p.line(plain, 0, "")
	p.list(bold, 0, " ", "What keeps PyTorch's cache from the driver:", ownerName(s, c.Process, report.MaxName), "on "+format.Device(c.Device, ledger.Tensor))
	p.line(plain, 0, "")
	if c.Cached > 0 {
		p.paragraph("", c.StuckText()+"; "+c.IdleText()+".")
		if text := c.OthersText(); text != "" {
			p.paragraph("", text+".")
		}
	} else {
		p.paragraph("", "There is no cache in segments that were allocated since the attach.")
	}
	if c.Segments > 0 {
		p.line(plain, 0, "")
	}
	stuckRows(p, c, top)
	for _, text := range c.Doubts(s) {
		p.paragraph("! ", text)
	}
}

func stuckRows(p *page, c *report.StuckCache, top int) {
	for i := range c.Rows[:min(len(c.Rows), top)] {
		stuckRow(p, c, &c.Rows[i])
	}
	if n := len(c.Rows) - top; n > 0 {
		var free uint64
		lines := 0
		for i := range c.Rows[top:] {
			free += c.Rows[top+i].Free
			lines += len(c.Rows[top+i].Lines)
		}
		p.text(plain, siteIndent, format.Count(uint64(lines), "more line")+" with "+format.Bytes(free))
	}
	if r := &c.Rest; r.Segments > 0 {
		p.text(plain, siteIndent, format.Bytes(r.Free)+" in "+format.Count(r.Segments, "segment")+" with tensors of many lines each")
	}
}

// stuckRow writes the lines of a row, what they hold, and who keeps their tensors.
func stuckRow(p *page, c *report.StuckCache, r *fragmentation.Row) {
	figure := format.Pad("-", siteIndent) + format.Pad(format.Bytes(r.Free), 8)
	for i := range r.Lines {
		p.headLine(plain, figure, r.Lines[i].Frame)
		figure = format.Pad("", siteIndent) + format.Pad("with", 8)
	}
	p.paragraph(strings.Repeat(" ", siteIndent), r.HoldText())
	for i := range r.Lines {
		text := report.KeptText(c.KeptBy(&r.Lines[i]), r.Lines[i].Bytes)
		if text != "" && len(r.Lines) > 1 {
			front, _ := frames.Parts(&r.Lines[i].Frame)
			text = front + ": " + text
		}
		p.paragraph(strings.Repeat(" ", siteIndent), text)
	}
}

// asleepSites writes the lines that have tensors asleep.
func asleepSites(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	text := report.AsleepText(s)
	if text == "" {
		return
	}
	list := report.AsleepSites(s)
	p.line(plain, 0, "")
	p.paragraph("", text)
	if len(list) > 0 {
		p.line(plain, 0, "")
	}
	rows := rowsBy(s, st, list, func(x *ledger.Site) uint64 { return x.Asleep })
	for i := range rows[:min(len(rows), top)] {
		r := &rows[i]
		p.headLine(plain, format.Pad("-", siteIndent)+format.Pad(format.Bytes(r.figure), 8), r.Frame)
		p.list(plain, siteIndent, ", ", slices.Concat([]string{"of " + format.Bytes(r.LiveBytes)}, siteOwner(s, &r.Site), aboutRow(&r.Row))...)
	}
	if n := len(rows) - top; n > 0 {
		p.text(plain, siteIndent, format.Count(uint64(n), "more line"))
	}
}

// figured is a line of code with one figure of its sites.
type figured struct {
	lines.Row
	figure uint64
}

// rowsBy sums sites by line, those with the highest figure first.
func rowsBy(s *ledger.Snapshot, st callstack.Stacks, sites []*ledger.Site, figure func(*ledger.Site) uint64) (list []figured) {
	copies := make([]ledger.Site, len(sites))
	for i, x := range sites {
		copies[i] = *x
	}
	for _, r := range lines.New(s, st, nil).Rows(copies) {
		f := figured{Row: r}
		for i := range r.Sites {
			f.figure += figure(&r.Sites[i])
		}
		list = append(list, f)
	}
	slices.SortStableFunc(list, func(a, b figured) int { return cmp.Compare(b.figure, a.figure) })
	return list
}

// torchTable writes the state of PyTorch's allocator of each process and device.
func torchTable(p *page, s *ledger.Snapshot) {
	if len(s.Tensors) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.text(bold, 0, "PyTorch's allocator: reserved = tensors + cache")
	p.line(plain, 0, "")
	rows := [][]string{{"process", "device", "tensors", "reserved", "cache", "free run"}}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		row := []string{ownerName(s, t.Process, p.firstColumn(len(rows[0])-2)), format.Device(t.Device, ledger.Tensor)}
		if t.Device == ledger.CPUDevice { // has no such allocator
			rows = append(rows, append(row, format.Bytes(t.LiveBytes)))
			continue
		}
		rows = append(rows, append(row, format.Bytes(t.Allocated), format.Bytes(t.Reserved), format.Bytes(report.Minus(t.Reserved, t.Allocated)), format.Bytes(t.LargestFree)))
	}
	p.table(rows)
	p.line(plain, 0, "")
	for _, text := range report.TorchTexts(s) {
		p.paragraph("", text)
	}
}

// cacheSites writes PyTorch's cache by the code that made it grow.
func cacheSites(p *page, s *ledger.Snapshot, st callstack.Stacks, top int) {
	list, sum := report.CacheSites(s)
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.list(bold, 0, " ", "PyTorch cache, under what made it grow:", format.Bytes(sum)+",", "kept for later tensors")
	p.line(plain, 0, "")
	rows := rowsBy(s, st, list, report.CacheBytes)
	for i := range rows[:min(len(rows), top)] {
		r := &rows[i]
		p.headLine(plain, format.Pad("-", siteIndent)+format.Pad(format.Bytes(r.figure), 8), r.Frame)
		owner := []string{"of " + format.Count(r.LiveObjects, "segment") + " with " + format.Bytes(r.LiveBytes)}
		p.list(plain, siteIndent, ", ", slices.Concat(owner, siteOwner(s, &r.Site), aboutRow(&r.Row))...)
	}
	if n := len(rows) - top; n > 0 {
		var rest uint64
		for _, r := range rows[top:] {
			rest += r.figure
		}
		p.text(plain, siteIndent, format.Count(uint64(n), "more line")+" with "+format.Bytes(rest))
	}
}

// allocatorParts writes what the cache of each allocator that was read is made of.
func allocatorParts(p *page, s *ledger.Snapshot, st callstack.Stacks, limit int) {
	for i := range s.Caches {
		c := &s.Caches[i]
		if s.Processes[c.Process].End != 0 || c.Reserved == 0 {
			continue
		}
		p.line(plain, 0, "")
		p.list(bold, 0, " ", "What PyTorch's cache is made of:", ownerName(s, c.Process, report.MaxName), "on "+format.Device(c.Index, ledger.Tensor))
		p.line(plain, 0, "")
		p.paragraph("", format.Bytes(c.Reserved)+" reserved = "+format.Bytes(c.Allocated)+" of tensors + "+format.Bytes(c.Cached)+" of cache")
		kindRows(p, c)
		of := pools.Of(c, st)
		arenaTable(p, c, of, limit)
		poolLines(p, of, limit)
		p.line(plain, 0, "")
		for _, text := range report.AllocatorTexts(s, c) {
			p.paragraph("", text)
		}
	}
}

// kindRows writes what a cache is made of.
func kindRows(p *page, c *ledger.AllocatorCache) {
	for _, k := range report.CacheKinds {
		if n := k.Of(&c.Cache); n > 0 {
			p.paragraph(format.Pad("-", siteIndent)+format.Pad(format.Bytes(n), 10), k.Text())
		}
	}
}

// poolLines writes which line of code made each private pool.
func poolLines(p *page, of *pools.Pools, limit int) {
	list := of.Lines()
	if len(list) == 0 {
		return
	}
	p.line(plain, 0, "")
	p.paragraph("", "Private pools, by the line that made their first segment:")
	for i := range list[:min(len(list), limit)] {
		x := &list[i]
		p.headLine(plain, format.Pad("-", siteIndent)+format.Pad(of.Name(x.Pool), 14), x.Frame)
		for k := range x.Captured[:min(len(x.Captured), limit)] {
			y := &x.Captured[k]
			p.headLine(plain, format.Pad("", 2*siteIndent)+"took "+format.Pad(format.Bytes(y.Bytes), 8), y.Frame)
			p.text(dim, 2*siteIndent, y.Text())
		}
		if n := len(x.Captured) - limit; n > 0 {
			p.text(dim, 2*siteIndent, format.Count(uint64(n), "more line"))
		}
	}
	if n := len(list) - limit; n > 0 {
		p.text(plain, siteIndent, format.Count(uint64(n), "more pool"))
	}
}

// arenaTable writes the arenas of a cache, the largest first.
func arenaTable(p *page, c *ledger.AllocatorCache, of *pools.Pools, limit int) {
	streams := report.StreamNames(&c.Cache)
	rows := [][]string{{"pool", "stream", "segments", "reserved", "tensors", "free", "free run"}}
	shown := c.Arenas[:min(len(c.Arenas), limit)]
	for i := range shown {
		a := &shown[i]
		size := ", large"
		if a.Small {
			size = ", small"
		}
		rows = append(rows, []string{of.Name(a.Pool), streams[a.Stream] + size, strconv.FormatUint(a.Segments, 10),
			format.Bytes(a.Reserved), format.Bytes(a.Allocated), format.Bytes(a.Free), format.Bytes(a.LargestFree)})
	}
	p.line(plain, 0, "")
	p.table(rows)
	if n := len(c.Arenas) - len(shown); n > 0 {
		p.text(plain, siteIndent, format.Count(uint64(n), "more row"))
	}
}
