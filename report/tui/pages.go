// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// page is a text that covers the views.
type page interface {
	lines(x *scene) []string
	keys() []key.Binding
}

// scrolled has the keys of a page that can only be scrolled.
type scrolled struct{}

func (scrolled) keys() []key.Binding {
	return []key.Binding{short(bound.back, "back"), bind("↑↓", "scroll"), short(bound.quit, "quit")}
}

// pager shows the open page, and scrolls it.
type pager struct {
	page page // nil: none
	text viewport.Model
}

func newPager() pager {
	p := pager{text: viewport.New()}
	p.text.SoftWrap = false
	return p
}

// fill writes the open page for the moment and width.
func (p *pager) fill(x *scene) {
	if p.page == nil {
		return
	}
	p.text.SetWidth(x.size.width)
	p.text.SetHeight(x.size.bodyHeight())
	p.text.SetContentLines(p.page.lines(x))
}

func (p *pager) draw(x *scene) []string {
	p.text.SetWidth(x.size.width)
	p.text.SetHeight(x.size.bodyHeight())
	return strings.Split(p.text.View(), "\n")
}

// show fills the open page, and goes to its top.
func (p *pager) show(x *scene) {
	p.fill(x)
	p.text.GotoTop()
}

// closesHelp closes the help with a key that does not scroll it, choose a view or interrupt.
func (p *pager) closesHelp(msg tea.KeyPressMsg) bool {
	if _, help := p.page.(helpPage); !help || msg.String() == "ctrl+c" || key.Matches(msg, bound.up, bound.down, bound.pageUp, bound.pageDown, bound.home, bound.end,
		bound.gpus, bound.processes, bound.lines, bound.timeline, bound.next, bound.previous) {
		return false
	}
	p.page = nil
	return true
}

// press scrolls, turns or closes the page. It reports whether the key goes on to the views.
func (p *pager) press(msg tea.KeyPressMsg, x *scene) (on bool, cmd tea.Cmd) {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	d, turns := p.page.(*detail)
	switch {
	case is(bound.back), is(bound.open):
		p.page = nil
	case is(bound.home):
		p.text.GotoTop()
	case is(bound.end):
		p.text.GotoBottom()
	case turns && is(bound.nextStack):
		d.turn(1)
		p.show(x)
	case turns && is(bound.previousOne):
		d.turn(-1)
		p.show(x)
	case is(bound.gpus), is(bound.processes), is(bound.lines), is(bound.timeline), is(bound.next), is(bound.previous):
		p.page = nil
		return true, nil
	default:
		p.text, cmd = p.text.Update(msg)
	}
	return false, cmd
}

// wrap breaks a text between words; lines after the first are indented by the width of sign.
func wrap(sign, text string, width int) []string {
	var list []string
	line, empty := sign, true
	for _, word := range format.Words(text) {
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

// oldVerdicts is the age from which verdicts have their age beside them, ns.
const oldVerdicts = 5e9

// readDoubts collects what the books lack. What makes totals wrong stands on every screen.
func (d *reading) readDoubts() {
	if v := d.Judged; v == nil {
		d.doubts = append(d.doubts, "no line has a verdict yet")
	} else if age := report.Minus(d.s.End, v.at); age >= oldVerdicts {
		d.doubts = append(d.doubts, "verdicts are "+format.Span(age)+" old")
	}
	for _, x := range report.Doubts(d.Snapshot) {
		d.doubts = append(d.doubts, tidy(x.Text))
		if x.At == report.AtTotals && d.loss == "" {
			d.loss = tidy(x.Text)
		}
	}
}

// doubtsPage is what the books lack, with remarks and advice.
type doubtsPage struct{ scrolled }

func (doubtsPage) lines(x *scene) []string {
	b, width := x.b, x.size.width
	if b == nil {
		return nil
	}
	var list []string
	if b.Judged != nil && len(b.Judged.judgement.GPUs) > 0 {
		list = append(list, x.p.paint(bold, "What GPUs are used for"), "")
		for _, text := range b.Judged.judgement.BalanceTexts(len(b.Judged.judgement.GPUs)) {
			list = append(list, wrap("- ", tidy(text), width)...)
		}
		list = append(list, "")
	}
	list = append(list, x.p.paint(bold, "What the figures leave open"), "")
	if len(b.doubts) == 0 {
		list = append(list, "Nothing was lost.")
	}
	for _, text := range b.doubts {
		list = append(list, wrap("- ", text, width)...)
	}
	if remarks := b.remarkTexts(); len(remarks) > 0 {
		list = append(list, "", x.p.paint(bold, "Remarks"), "")
		for _, text := range remarks {
			list = append(list, wrap("- ", text, width)...)
		}
	}
	if b.Judged != nil && len(b.Judged.judgement.Advice) > 0 {
		list = append(list, "", x.p.paint(bold, "Advice"), "")
		for _, text := range b.Judged.judgement.Advice {
			list = append(list, wrap("- ", tidy(text), width)...)
		}
	}
	return list
}

// remarks returns what else is to be said of a moment. It costs too much for every one.
func (b *books) remarkTexts() (list []string) {
	for _, text := range append(report.TorchTexts(b.Snapshot), report.Remarks(b.Snapshot, b.Stacks)...) {
		list = append(list, tidy(text))
	}
	return list
}

// jobText returns "rank 3 of 8, pod ml/llama-0".
func jobText(p *ledger.Process) string {
	return tidy(strings.Join(report.WorkloadText(p.Workload), ", "))
}
