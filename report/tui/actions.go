// SPDX-License-Identifier: Apache-2.0

package tui

import tea "charm.land/bubbletea/v2"

// writeProfile has a profile written of what is shown.
func (m *Model) writeProfile() tea.Cmd {
	if m.o.Profile == nil || m.shown == nil || m.busy {
		m.tell(m.o.Profile == nil, "no profile can be written here")
		return nil
	}
	m.busy = true
	write, s := m.o.Profile, m.shown.high()
	return func() tea.Msg {
		path, err := write(s)
		return doneMsg{text: "profile written: " + path, err: err}
	}
}

func (m *Model) toggleCapture() tea.Cmd {
	if m.o.Capture == nil || m.busy {
		m.tell(m.o.Capture == nil, "no capture can be started here")
		return nil
	}
	m.busy = true
	on, start := !m.capturing, m.o.Capture
	return func() tea.Msg {
		path, err := start(on)
		text := "capture goes on until s: " + path
		if !on {
			text = "capture written: " + path
		}
		return doneMsg{text: text, err: err, capture: true, on: on}
	}
}

func (m *Model) tell(when bool, text string) {
	if when {
		m.status, m.statusAge = &happening{text: text, style: warning}, 0
	}
}

func (m *Model) done(msg doneMsg) {
	m.busy, m.statusAge = false, 0
	m.status = &happening{text: tidy(msg.text), style: good}
	if msg.err != nil {
		m.status = &happening{text: tidy(msg.err.Error()), style: alarm}
		return
	}
	if msg.capture {
		m.capturing = msg.on
	}
}
