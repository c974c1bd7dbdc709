// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func (m *Model) press(msg tea.KeyPressMsg) tea.Cmd {
	if m.prompt.typing {
		changed, cmd := m.prompt.press(msg)
		m.filtered(changed)
		return cmd
	}
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	if m.pager.closesHelp(msg) {
		return nil
	}
	switch {
	case is(bound.quit):
		return tea.Quit
	case is(bound.help):
		m.toggle(helpPage{})
	case is(bound.doubts):
		m.toggle(doubtsPage{})
	case is(bound.freeze):
		m.freeze()
	case is(bound.profile):
		return m.actions.writeProfile(m.shown)
	case is(bound.capture):
		return m.actions.toggleCapture()
	case m.pager.page != nil:
		on, cmd := m.pager.press(msg, m.scene())
		if on {
			return m.pressInView(msg)
		}
		return cmd
	default:
		return m.pressInView(msg)
	}
	return nil
}

func (m *Model) pressInView(msg tea.KeyPressMsg) tea.Cmd {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	switch {
	case m.pressMove(msg):
	case m.pressOrder(msg):
		m.views.drop()
	case is(bound.gpus):
		m.change(viewGPUs)
	case is(bound.processes):
		m.change(viewProcesses)
	case is(bound.lines):
		m.change(viewLines)
	case is(bound.timeline):
		m.change(viewTimeline)
	case is(bound.next):
		m.change((m.view + 1) % viewCount)
	case is(bound.previous):
		m.change((m.view + viewCount - 1) % viewCount)
	case is(bound.filter):
		return m.prompt.begin()
	case is(bound.open):
		m.open()
	case is(bound.back):
		m.back()
	}
	return nil
}

// pressMove moves the cursor, if the key is for that.
func (m *Model) pressMove(msg tea.KeyPressMsg) bool {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	x := m.scene()
	rows, l := rowsOf(m.current(), x), m.current().state()
	c, pageRows := &l.cursor, max(x.size.bodyRows()-1, 1)
	switch {
	case is(bound.up):
		c.move(-1, rows)
	case is(bound.down):
		c.move(1, rows)
	case is(bound.pageUp):
		c.move(-pageRows, rows)
	case is(bound.pageDown):
		c.move(pageRows, rows)
	case is(bound.home):
		c.at = 0
	case is(bound.end):
		c.at = max(rows-1, 0)
	case is(bound.left), is(bound.right):
		if m.view == viewLines {
			m.views.lines.fold(x, is(bound.left))
		}
		return true
	default:
		return false
	}
	l.keep(m.current(), x)
	return true
}

// pressOrder changes which rows the view has, or their order, if the key is for that.
func (m *Model) pressOrder(msg tea.KeyPressMsg) bool {
	is := func(b key.Binding) bool { return key.Matches(msg, b) }
	switch {
	case is(bound.sortLeft):
		m.moveSort(-1)
	case is(bound.sortRight):
		m.moveSort(1)
	case is(bound.reverse):
		l := m.current().state()
		l.reversed = !l.reversed
	case is(bound.tree):
		if m.view == viewLines {
			m.views.lines.toggleTree()
		}
	case is(bound.merge):
		m.views.lines.merged = !m.views.lines.merged
	default:
		return false
	}
	return true
}

// moveSort sorts by the next column, or by the one before.
func (m *Model) moveSort(step int) {
	if m.shown == nil {
		return
	}
	if names := m.current().names(m.scene()); len(names) > 0 {
		m.current().state().moveSort(names, step)
	}
}

// toggle opens a page, or closes it if it is open.
func (m *Model) toggle(p page) {
	if m.pager.page == p {
		p = nil
	}
	m.turnTo(p)
}

func (m *Model) turnTo(p page) {
	m.pager.page = p
	m.pager.show(m.scene())
}

func (m *Model) change(n viewNumber) {
	m.view = n
	m.views.drop()
}

// freeze stops the display where it is, or lets it go on.
func (m *Model) freeze() {
	m.frozen = !m.frozen
	if !m.frozen && m.latest != nil {
		m.show(m.latest)
	}
}

func (m *Model) open() {
	if m.shown == nil {
		return
	}
	t, ok := m.current().open(m.scene())
	switch {
	case !ok:
	case t.page != nil:
		m.turnTo(t.page)
	default:
		m.choice = t.choice
		m.views.of(t.view).state().cursor = cursor{}
		m.change(t.view)
	}
}

// back undoes the last choice: the filter, the process, the GPU.
func (m *Model) back() {
	switch {
	case m.prompt.filter.text != "":
		m.filtered(m.prompt.set(""))
	case m.view >= viewLines && m.ofOne():
		m.process = ledger.ProcessID{}
		if m.view == viewLines {
			m.view = viewProcesses
		}
	case m.view == viewProcesses && m.gpu != nil:
		m.gpu = nil
		m.view = viewGPUs
	}
	m.views.drop()
}

// filtered has the rows chosen anew if the filter is another one.
func (m *Model) filtered(changed bool) {
	if changed {
		m.current().state().cursor = cursor{}
		m.views.drop()
	}
}
