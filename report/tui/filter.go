// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"regexp"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// maxFilter is the longest filter, in characters.
const maxFilter = 200

// filter chooses rows by a regular expression, or by a text where it is none. Upper and lower case
// are the same.
type filter struct {
	text string
	re   *regexp.Regexp
}

func newFilter(text string) filter {
	f := filter{text: text}
	if text == "" {
		return f
	}
	re, err := regexp.Compile("(?i)" + text)
	if err != nil {
		re = regexp.MustCompile("(?i)" + regexp.QuoteMeta(text))
	}
	f.re = re
	return f
}

// passes reports whether one of the texts of a row matches.
func (f *filter) passes(texts ...string) bool {
	if f.re == nil {
		return true
	}
	for _, text := range texts {
		if f.re.MatchString(text) {
			return true
		}
	}
	return false
}

func (m *Model) setFilter(text string) {
	if text == m.filter.text {
		return
	}
	m.filter = newFilter(text)
	if !m.typing {
		m.input.SetValue(text)
	}
	m.cursors[m.view] = cursor{}
	m.lists.drop()
}

// typeFilter edits the filter. It chooses rows at once.
func (m *Model) typeFilter(msg tea.KeyPressMsg) tea.Cmd {
	switch msg.String() {
	case "ctrl+c":
		return tea.Quit
	case "enter", "esc":
		m.typing = false
		m.input.Blur()
		if msg.String() == "esc" {
			m.setFilter("")
			m.input.SetValue("")
		}
		return nil
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	m.applyFilter()
	return cmd
}

func (m *Model) applyFilter() { m.setFilter(tidy(strings.TrimSpace(m.input.Value()))) }
