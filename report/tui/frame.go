// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"slices"
	"strings"

	"charm.land/bubbles/v2/key"
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// screen is how the lines of a terminal are divided: title, loss, GPUs, tabs, body, happening, keys.
type screen struct {
	width, height         int
	loss, tabs, last, key bool
	gpus                  int
}

func (s screen) bodyRows() int { return max(s.bodyHeight()-1, 1) } // without the header

func (s screen) bodyHeight() int {
	return max(s.height-1-btoi(s.loss)-btoi(s.tabs)-btoi(s.last)-btoi(s.key)-s.gpus, 0)
}

// frame divides the screen. What matters least goes first where it is small.
func (m *Model) frame() screen {
	s := screen{width: m.width, height: m.height}
	left := s.height - 1 - 2 // title, header and a row
	take := func(n int, want bool) bool {
		if want && left >= n {
			left -= n
			return true
		}
		return false
	}
	s.tabs = take(1, true)
	s.last = take(1, true)
	s.loss = take(1, m.shown != nil && m.shown.loss != "")
	s.key = take(1, s.height >= 8)
	if m.shown != nil && m.view != viewGPUs && m.page == pageNone {
		s.gpus = max(0, min(len(m.shown.gpus), s.height/5, left-2))
	}
	return s
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

func (m *Model) draw() string {
	s := m.frame()
	if s.width <= 0 || s.height <= 0 {
		return ""
	}
	list := []string{m.titleLine(s.width)}
	if s.loss {
		list = append(list, m.palette.paint(warning, format.Cut("! "+m.shown.loss, s.width)))
	}
	list = append(list, m.gpuBars(s)...)
	if s.tabs {
		list = append(list, m.tabLine(s.width))
	}
	body := m.body(s)
	for len(body) < s.bodyHeight() {
		body = append(body, "")
	}
	list = append(list, body[:s.bodyHeight()]...)
	if s.last {
		list = append(list, m.lastLine(s.width))
	}
	if s.key {
		list = append(list, m.keyLine(s.width))
	}
	return strings.Join(list[:min(len(list), s.height)], "\n")
}

func (m *Model) body(s screen) []string {
	switch {
	case m.page != pageNone:
		m.text.SetWidth(s.width)
		m.text.SetHeight(s.bodyHeight())
		return strings.Split(m.text.View(), "\n")
	case m.shown == nil:
		return []string{"", format.Cut("  waiting for the first data", s.width)}
	}
	switch m.view {
	case viewGPUs:
		return m.drawGPUs(s)
	case viewProcesses:
		return m.drawProcesses(s)
	case viewLines:
		return m.drawLines(s, s.bodyHeight())
	}
	return m.drawTimeline(s)
}

// titleLine returns "vramprof top  gpu-box  12:31:36  traced 1m40s  3 processes  FROZEN".
func (m *Model) titleLine(width int) string {
	b := m.shown
	left, right := " vramprof top", ""
	if b != nil {
		s := b.Snapshot
		running, leaking := 0, 0
		for i := range s.Processes {
			running += btoi(s.Processes[i].End == 0)
		}
		for i := range b.lines {
			leaking += btoi(b.lines[i].class() == verdict.Leaking)
		}
		var flags []string
		flag := func(when bool, text string) {
			if when {
				flags = append(flags, text)
			}
		}
		flag(m.frozen, "FROZEN")
		flag(b.Ended && (b.Speed > 0 || !b.alive), "ENDED") // a single screen of what runs has not
		flag(m.capturing, "CAPTURE")
		flag(leaking > 0, format.Count(uint64(leaking), "leak"))
		flag(b.Snapshot.Stats.Lost > 0, format.Count(b.Snapshot.Stats.Lost, "event")+" lost")
		flag(b.Speed > 0, fmt.Sprintf("×%.4g", b.Speed))
		right = strings.Join(flags, "  ")
		if right != "" {
			right += " "
		}
		for _, part := range []string{tidy(s.Host), s.Wall.Format("15:04:05"), "traced " + format.Span(s.End-s.Begin), format.Count(uint64(running), "process")} {
			if part != "" && format.Width(left)+2+format.Width(part)+1+format.Width(right) <= width {
				left += "  " + part
			}
		}
	}
	right = format.Cut(right, max(width-3, 0))
	room := max(width-format.Width(right), 0)
	return m.palette.paint(title, format.Pad(format.Cut(left, max(room-1, 0)), room)+right)
}

// tabLine returns the names of the views, and what is chosen.
func (m *Model) tabLine(width int) string {
	var b painted
	b.p = m.palette
	used := 0
	write := func(s style, text string) {
		text = format.Cut(text, width-used)
		used += format.Width(text)
		for _, r := range text {
			b.rune(s, r)
		}
	}
	narrow := width < 50
	for v, name := range viewNames {
		if view(v) == m.view {
			text := fmt.Sprintf("[%d %s]", v+1, name)
			write(bold, text)
		} else if narrow {
			write(dim, fmt.Sprintf(" %d ", v+1))
		} else {
			write(dim, fmt.Sprintf(" %d %s ", v+1, name))
		}
	}
	if text := m.scopeText(); text != "" && width-used > 6 {
		write(plain, "  "+text)
	}
	b.end()
	return b.String()
}

// scopeText returns "of python3 [42], /train/, merged".
func (m *Model) scopeText() string {
	var parts []string
	if m.shown != nil && m.view >= viewLines && m.process != (ledger.ProcessID{}) {
		name := fmt.Sprintf("pid %d", m.process.PID)
		if i := slices.IndexFunc(m.shown.Snapshot.Processes, func(p processT) bool { return p.ID() == m.process }); i >= 0 {
			name = processName(m.shown, i, 30)
		}
		parts = append(parts, "of "+name)
	}
	if m.shown != nil && m.view == viewProcesses && m.gpu != nil {
		for i := range m.shown.gpus {
			if m.shown.gpus[i].key == *m.gpu {
				parts = append(parts, "on GPU "+m.shown.gpus[i].label)
			}
		}
	}
	if m.view == viewLines {
		if m.tree {
			parts = append(parts, "tree")
		}
		if m.merged {
			parts = append(parts, "merged")
		}
	}
	if m.filter.text != "" && !m.typing {
		parts = append(parts, "/"+m.filter.text+"/")
	}
	return strings.Join(parts, ", ")
}

// lastLine shows the filter while it is typed, else what w and s did, else what happened last.
func (m *Model) lastLine(width int) string {
	if m.typing {
		m.input.SetWidth(max(width-3, 1))
		return m.input.View()
	}
	h := m.status
	if h == nil {
		h = m.chronicle.last()
	}
	switch {
	case m.busy:
		return m.palette.paint(dim, format.Cut("writing…", width))
	case h == nil:
		return ""
	}
	return m.palette.paint(h.style, format.Cut(format.Join(h.clock, h.text), width))
}

// keyLine lists the keys of the view, as many as fit.
func (m *Model) keyLine(width int) string {
	var b strings.Builder
	used := 0
	for _, k := range m.shortHelp() {
		h := k.Help()
		n := format.Width(h.Key) + 1 + format.Width(h.Desc) + 2
		if used+n-2 > width {
			break
		}
		if used > 0 {
			b.WriteString("  ")
		}
		used += n
		b.WriteString(m.palette.paint(bold, h.Key) + " " + m.palette.paint(dim, h.Desc))
	}
	return b.String()
}

func short(b key.Binding, does string) key.Binding {
	return key.NewBinding(key.WithKeys(b.Keys()...), key.WithHelp(b.Help().Key, does))
}

// shortHelp returns the keys of the bottom line, the most needed first.
func (m *Model) shortHelp() []key.Binding {
	quit, help := short(bound.quit, "quit"), short(bound.help, "help")
	switch m.page {
	case pageDetail:
		return []key.Binding{short(bound.back, "back"), bind("↑↓", "scroll"), bind("n p", "other stacks"), quit}
	case pageHelp, pageDoubts:
		return []key.Binding{short(bound.back, "back"), bind("↑↓", "scroll"), quit}
	}
	list := []key.Binding{help, quit, bind("Tab", "view")}
	switch m.view {
	case viewProcesses:
		list = append(list, short(bound.open, "lines"))
	case viewLines:
		list = append(list, short(bound.open, "stack"), short(bound.tree, "tree/list"), short(bound.merge, "merge"))
	case viewGPUs:
		list = append(list, short(bound.open, "processes"))
	}
	return append(list, short(bound.filter, "filter"), bind("< >", "sort"), short(bound.freeze, "freeze"), short(bound.profile, "profile"), short(bound.capture, "capture"), short(bound.doubts, "doubts"))
}
