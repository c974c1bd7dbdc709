// SPDX-License-Identifier: Apache-2.0

package tui

import (
	tea "charm.land/bubbletea/v2"
)

// Model is a screen: it dispatches messages and keys to its parts, and frames the view or page that
// is open. Its methods are those of tea.Model, which call it in one goroutine.
type Model struct {
	feed    feed
	actions actions
	prompt  prompt
	pager   pager
	views   views
	view    viewNumber

	latest, shown *books // shown is latest unless frozen; nil: no data yet
	frozen        bool
	history
	choice

	width, height int
	palette       *palette
	drawn         string // the screen as it was drawn last
	stale         bool   // it has changed since
}

// New returns a screen without data. It shows the Moments that it is sent.
func New(o Options) *Model {
	return &Model{
		feed: feed{reader: newReader(&o)}, actions: actions{profile: o.Profile, capture: o.Capture}, prompt: newPrompt(), pager: newPager(),
		views: newViews(&o), view: viewProcesses, history: history{newSeries(), newChronicle()},
		palette: newPalette(true), width: 80, height: 24, stale: true,
	}
}

// Init implements tea.Model.
func (m *Model) Init() tea.Cmd { return tea.RequestBackgroundColor }

// Update implements tea.Model.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	m.stale = true
	switch msg := msg.(type) {
	case Moment:
		m.stale = false
		return m, m.feed.receive(msg)
	case booksMsg:
		m.take(msg.books)
		return m, m.feed.next()
	case doneMsg:
		m.actions.done(msg)
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.pager.fill(m.scene())
	case tea.BackgroundColorMsg:
		m.palette = newPalette(msg.IsDark())
	case tea.KeyPressMsg:
		return m, m.press(msg)
	default:
		m.stale = m.prompt.typing
		if m.prompt.typing {
			changed, cmd := m.prompt.update(msg)
			m.filtered(changed)
			return m, cmd
		}
	}
	return m, nil
}

// View implements tea.Model. It draws only what has changed.
func (m *Model) View() tea.View {
	if m.stale {
		m.drawn, m.stale = m.draw(), false
	}
	v := tea.NewView(m.drawn)
	v.AltScreen = true
	return v
}

func (m *Model) take(b *books) {
	m.actions.take(m.history.take(b))
	m.latest = b
	if !m.frozen || m.shown == nil {
		m.show(b)
	}
}

// show draws the views from a moment.
func (m *Model) show(b *books) {
	m.shown = b
	m.views.drop()
	m.pager.fill(m.scene())
}

func (m *Model) scene() *scene {
	return &scene{b: m.shown, history: m.history, choice: m.choice, filter: m.prompt.filter, p: m.palette, size: m.frame()}
}

func (m *Model) current() view { return m.views.of(m.view) }

// rows returns how many rows the view has.
func (m *Model) rows() int { return rowsOf(m.current(), m.scene()) }
