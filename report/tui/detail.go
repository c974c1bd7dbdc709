// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// detail is the page of the stacks of one row of lines, one at a time.
type detail struct {
	shares []shareKey
	at     int
}

// shareKey identifies a holding across moments.
type shareKey struct {
	site    ledger.SiteID // of a holding without a site only its process
	gpu     gpuKey
	plane   string
	mark    string
	hasSite bool
}

func (b *books) shareKey(k int32) shareKey {
	h := &b.holdings[k]
	x := shareKey{plane: h.Plane, mark: h.Mark, gpu: gpuKey{uuid: h.UUID}, hasSite: h.Site != nil}
	if h.Site != nil {
		x.site = b.Snapshot.IDOf(h.Site)
	} else {
		x.site.Process = b.Snapshot.Processes[h.Process].ID()
	}
	return x
}

// maxDetail is how many stacks of a row can be looked at.
const maxDetail = 1000

// newDetail returns the page of holdings, the largest first.
func newDetail(b *books, holdings []int32) *detail {
	slices.SortStableFunc(holdings, func(x, y int32) int {
		return int(min(max(b.holdings[y].Live-b.holdings[x].Live, -1), 1))
	})
	d := &detail{}
	for _, k := range holdings[:min(len(holdings), maxDetail)] {
		d.shares = append(d.shares, b.shareKey(k))
	}
	return d
}

// turn goes to another stack.
func (d *detail) turn(step int) {
	n := len(d.shares)
	d.at = (d.at + step + n) % n
}

func (*detail) keys() []key.Binding {
	return []key.Binding{short(bound.back, "back"), bind("↑↓", "scroll"), bind("n p", "other stacks"), short(bound.quit, "quit")}
}

// lines writes the chosen stack as leaks does.
func (d *detail) lines(x *scene) []string {
	b, width := x.b, x.size.width
	if b == nil || d.at >= len(d.shares) {
		return nil
	}
	want := d.shares[d.at]
	var list []string
	if n := len(d.shares); n > 1 {
		list = append(list, x.p.paint(bold, format.Cut(fmt.Sprintf("Stack %d of %d (n: next, p: previous)", d.at+1, n), width)), "")
	}
	for k := range b.holdings {
		if b.shareKey(int32(k)) == want {
			return append(list, d.shareLines(x, int32(k))...)
		}
	}
	return append(list, wrap("", "This memory was freed.", width)...)
}

func (d *detail) shareLines(x *scene, k int32) []string {
	b, width := x.b, x.size.width
	h := &b.holdings[k]
	var list []string
	if h.Mark != "" {
		name := format.Join(h.Mark, "of", processName(b, h.Process, 40)+":", format.SignedBytes(h.Live))
		list = append(list, x.p.paint(bold, format.Cut(name, width)), "")
		for _, part := range b.high().Parts() {
			if part.Process == h.Process && part.UUID == h.UUID {
				list = append(list, wrap("", tidy(report.PartText(b.high(), &part)), width)...)
			}
		}
	}
	if h.Site == nil {
		return list
	}
	if h.Mark != "" {
		list = append(list, "", format.Cut("It is part of the memory of this site:", width), "")
	}
	if j := b.Judged.of(b.Snapshot, h.Site); j != nil {
		list = append(list, x.p.paintAll(classStyle(j.class), wrap("", strings.TrimSpace(classMark(j.class))+": "+tidy(j.text), width))...)
		list = append(list, "")
	}
	for _, l := range text.SiteLines(b.Snapshot, b.Stacks, b.Judged.judgementOf(), h.Site, d.at+1, max(width, 20)) {
		list = append(list, x.p.line(&l, width))
	}
	return list
}

func (p *palette) paintAll(s style, list []string) []string {
	for i := range list {
		list[i] = p.paint(s, list[i])
	}
	return list
}

// lineStyles are the styles of the screen for those of package text.
var lineStyles = [...]style{text.Plain: plain, text.Bold: bold, text.Dim: dim, text.Alarm: alarm}

// line draws a line of a report in at most width columns.
func (p *palette) line(l *text.Line, width int) string {
	return strings.Repeat(" ", l.Indent) + p.paint(lineStyles[l.Style], format.Cut(tidy(l.Text), max(width-l.Indent, 0)))
}
