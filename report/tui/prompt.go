// SPDX-License-Identifier: Apache-2.0

package tui

import (
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
