// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/report/format"
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
