// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// detail is the stacks of one row of lines, one at a time.
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

// openDetail opens the stacks of the row of the cursor, the largest first.
func (m *Model) openDetail() {
	if m.rows() == 0 {
		return
	}
	b, r := m.shown, &m.lists.lines[min(m.cursors[viewLines].at, len(m.lists.lines)-1)]
	var shares []int32
	if r.node >= 0 {
		shares = m.grove.below(r.node, nil)
	}
	for _, i := range r.indices() {
		for k := b.lines[i].first; k >= 0; k = b.next[k] {
			shares = append(shares, k)
		}
	}
	slices.SortStableFunc(shares, func(x, y int32) int {
		return int(min(max(b.holdings[y].Live-b.holdings[x].Live, -1), 1))
	})
	m.detail = detail{}
	for _, k := range shares[:min(len(shares), maxDetail)] {
		m.detail.shares = append(m.detail.shares, b.shareKey(k))
	}
	if len(m.detail.shares) > 0 {
		m.turnTo(pageDetail)
	}
}

// maxDetail is how many stacks of a row can be looked at.
const maxDetail = 1000

func (m *Model) toggle(p page) {
	if m.page == p {
		p = pageNone
	}
	m.turnTo(p)
}

func (m *Model) turnTo(p page) {
	m.page = p
	m.fillPage()
	m.text.GotoTop()
}

func (m *Model) pressInPage(msg tea.KeyPressMsg) tea.Cmd {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	switch {
	case is(bound.back), is(bound.open):
		m.page = pageNone
	case is(bound.home):
		m.text.GotoTop()
	case is(bound.end):
		m.text.GotoBottom()
	case m.page == pageDetail && is(bound.nextStack):
		m.turn(1)
	case m.page == pageDetail && is(bound.previousOne):
		m.turn(-1)
	case is(bound.gpus), is(bound.processes), is(bound.lines), is(bound.timeline), is(bound.next), is(bound.previous):
		m.page = pageNone
		return m.pressInView(msg)
	default:
		var cmd tea.Cmd
		m.text, cmd = m.text.Update(msg)
		return cmd
	}
	return nil
}

// turn goes to another stack.
func (m *Model) turn(step int) {
	n := len(m.detail.shares)
	m.detail.at = (m.detail.at + step + n) % n
	m.turnTo(pageDetail)
}

// fillPage writes the open page for the moment and width.
func (m *Model) fillPage() {
	if m.page == pageNone {
		return
	}
	s := m.frame()
	m.text.SetWidth(s.width)
	m.text.SetHeight(s.bodyHeight())
	var list []string
	switch m.page {
	case pageHelp:
		list = m.helpLines(s.width)
	case pageDoubts:
		list = m.doubtLines(s.width)
	case pageDetail:
		list = m.detailLines(s.width)
	}
	m.text.SetContentLines(list)
}

func (m *Model) doubtLines(width int) []string {
	b := m.shown
	if b == nil {
		return nil
	}
	list := []string{m.palette.paint(bold, "What the figures leave open"), ""}
	if len(b.doubts) == 0 {
		list = append(list, "Nothing was lost.")
	}
	for _, x := range b.doubts {
		list = append(list, wrap("- ", x, width)...)
	}
	if remarks := b.remarkTexts(); len(remarks) > 0 {
		list = append(list, "", m.palette.paint(bold, "Remarks"), "")
		for _, x := range remarks {
			list = append(list, wrap("- ", x, width)...)
		}
	}
	if b.Judged != nil && len(b.Judged.judgement.Advice) > 0 {
		list = append(list, "", m.palette.paint(bold, "Advice"), "")
		for _, x := range b.Judged.judgement.Advice {
			list = append(list, wrap("- ", tidy(x), width)...)
		}
	}
	return list
}

// wrap breaks a text between words; lines after the first are indented by the width of sign.
func wrap(sign, text string, width int) []string {
	var list []string
	line, empty := sign, true
	for _, word := range strings.Fields(text) {
		if !empty && format.Width(line)+1+format.Width(word) > width {
			list = append(list, format.Cut(line, width))
			line, empty = indent(format.Width(sign)), true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return append(list, format.Cut(line, width))
}

// detailLines writes the chosen stack as leaks does.
func (m *Model) detailLines(width int) []string {
	b, d := m.shown, &m.detail
	if b == nil || d.at >= len(d.shares) {
		return nil
	}
	want := d.shares[d.at]
	var list []string
	if n := len(d.shares); n > 1 {
		list = append(list, m.palette.paint(bold, format.Cut(fmt.Sprintf("Stack %d of %d (n: next, p: previous)", d.at+1, n), width)), "")
	}
	for k := range b.holdings {
		if b.shareKey(int32(k)) == want {
			return append(list, m.shareLines(int32(k), width)...)
		}
	}
	return append(list, wrap("", "This memory was freed.", width)...)
}

func (m *Model) shareLines(k int32, width int) []string {
	b := m.shown
	h := &b.holdings[k]
	var list []string
	if h.Mark != "" {
		name := format.Join(h.Mark, "of", processName(b, h.Process, 40)+":", format.SignedBytes(h.Live))
		list = append(list, m.palette.paint(bold, format.Cut(name, width)), "")
		for _, x := range b.high().Parts() {
			if x.Process == h.Process && x.UUID == h.UUID {
				list = append(list, wrap("", tidy(report.PartText(b.high(), &x)), width)...)
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
		list = append(list, m.painted(classStyle(j.class), wrap("", strings.TrimSpace(classMark(j.class))+": "+tidy(j.text), width))...)
		list = append(list, "")
	}
	var out bytes.Buffer
	_ = text.WriteSite(&out, b.Snapshot, b.Stacks, h.Site, m.detail.at+1, text.Screen{Width: max(width, 20), Color: true}) // a buffer takes all
	for line := range strings.Lines(out.String()) {
		list = append(list, m.restyled(strings.TrimSuffix(line, "\n"), width))
	}
	return list
}

func (m *Model) painted(s style, list []string) []string {
	for i := range list {
		list[i] = m.palette.paint(s, list[i])
	}
	return list
}

// sgrLine is a line of report/text: an indent, a style and the text.
var sgrLine = regexp.MustCompile(`^( *)(?:\x1b\[(\d+)m)?(.*?)(?:\x1b\[0?m)?$`)

var sgrStyles = map[string]style{"": plain, "1": bold, "2": dim, "31": alarm}

// restyled draws a line of report/text in the styles of the screen.
func (m *Model) restyled(line string, width int) string {
	x := sgrLine.FindStringSubmatch(line)
	if x == nil {
		return format.Cut(tidy(line), width)
	}
	return x[1] + m.palette.paint(sgrStyles[x[2]], format.Cut(tidy(x[3]), max(width-len(x[1]), 0)))
}
