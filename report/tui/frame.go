// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"strings"

	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/verdict"
)

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
	s.grows = take(1, s.height >= 12 && m.shown.growthText() != "")
	s.key = take(1, s.height >= 8)
	if m.shown != nil && m.view != viewGPUs && m.pager.page == nil {
		s.gpus = max(0, min(len(m.shown.gpus), s.height/5, left-2))
	}
	return s
}

func (m *Model) draw() string {
	x := m.scene()
	s := x.size
	if s.width <= 0 || s.height <= 0 {
		return ""
	}
	list := []string{m.titleLine(s.width)}
	if s.loss {
		list = append(list, m.palette.paint(warning, format.CutWords("! "+m.shown.loss, s.width)))
	}
	list = append(list, x.gpuBars()...)
	if s.grows {
		list = append(list, m.palette.paint(warning, format.CutWords("+ "+m.shown.growthText(), s.width)))
	}
	if s.tabs {
		list = append(list, m.tabLine(x))
	}
	body := m.body(x)
	for len(body) < s.bodyHeight() {
		body = append(body, "")
	}
	list = append(list, body[:s.bodyHeight()]...)
	switch {
	case s.last && m.prompt.typing:
		list = append(list, m.prompt.draw(s.width))
	case s.last:
		list = append(list, m.actions.draw(x))
	}
	if s.key {
		list = append(list, m.keyLine(s.width))
	}
	return strings.Join(list[:min(len(list), s.height)], "\n")
}

func (m *Model) body(x *scene) []string {
	switch {
	case m.pager.page != nil:
		return m.pager.draw(x)
	case m.shown == nil:
		return []string{"", format.Cut("  waiting for the first data", x.size.width)}
	}
	return m.current().draw(x)
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
		// The screen of --once is the last one, but what it shows runs on, or has not begun.
		flag(b.Ended && (b.Speed > 0 || running == 0 && len(s.Processes) > 0), "ENDED")
		flag(m.actions.capturing, "CAPTURE")
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
func (m *Model) tabLine(x *scene) string {
	b, width, used := painted{p: m.palette}, x.size.width, 0
	write := func(s style, text string) {
		text = format.Cut(text, width-used)
		used += format.Width(text)
		for _, r := range text {
			b.rune(s, r)
		}
	}
	narrow := width < 50
	for v, name := range viewNames {
		if viewNumber(v) == m.view {
			text := fmt.Sprintf("[%d %s]", v+1, name)
			write(bold, text)
		} else if narrow {
			write(dim, fmt.Sprintf(" %d ", v+1))
		} else {
			write(dim, fmt.Sprintf(" %d %s ", v+1, name))
		}
	}
	if text := m.scopeText(x); text != "" && width-used > 6 {
		write(plain, "  "+text)
	}
	b.end()
	return b.String()
}

// scopeText returns "of python3 [42], merged, /train/".
func (m *Model) scopeText(x *scene) string {
	parts := m.current().about(x)
	if text := m.prompt.filter.text; text != "" && !m.prompt.typing {
		parts = append(parts, "/"+text+"/")
	}
	return strings.Join(parts, ", ")
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
	if m.pager.page != nil {
		return m.pager.page.keys()
	}
	list := []key.Binding{short(bound.help, "help"), short(bound.quit, "quit"), bind("Tab", "view")}
	list = append(list, m.current().keys()...)
	return append(list, short(bound.filter, "filter"), bind("< >", "sort"), short(bound.freeze, "freeze"), short(bound.profile, "profile"), short(bound.capture, "capture"), short(bound.doubts, "doubts"))
}
