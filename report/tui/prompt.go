// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"regexp"
	"strings"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
)

// prompt is where the filter is typed. It chooses rows at once.
type prompt struct {
	filter filter
	input  textinput.Model
	typing bool
}

func newPrompt() prompt {
	p := prompt{input: textinput.New()}
	p.input.Prompt, p.input.CharLimit = "/", maxFilter
	p.input.KeyMap.Paste.SetEnabled(false) // it would run another program
	still := p.input.Styles()
	still.Cursor.Blink = false // or it would be drawn again all the time
	p.input.SetStyles(still)
	return p
}

func (p *prompt) begin() tea.Cmd {
	p.typing = true
	return p.input.Focus()
}

// set sets the filter, and reports whether it is another one.
func (p *prompt) set(text string) bool {
	if text == p.filter.text {
		return false
	}
	p.filter = newFilter(text)
	if !p.typing {
		p.input.SetValue(text)
	}
	return true
}

// press edits the filter, and reports whether it is another one.
func (p *prompt) press(msg tea.KeyPressMsg) (changed bool, cmd tea.Cmd) {
	switch msg.String() {
	case "ctrl+c":
		return false, tea.Quit
	case "enter", "esc":
		p.typing = false
		p.input.Blur()
		if msg.String() == "esc" {
			changed = p.set("")
			p.input.SetValue("")
		}
		return changed, nil
	}
	return p.update(msg)
}

// update passes on a key, text that is pasted, or what has the cursor drawn.
func (p *prompt) update(msg tea.Msg) (changed bool, cmd tea.Cmd) {
	p.input, cmd = p.input.Update(msg)
	return p.set(tidy(strings.TrimSpace(p.input.Value()))), cmd
}

func (p *prompt) draw(width int) string {
	p.input.SetWidth(max(width-3, 1))
	return p.input.View()
}

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
