// SPDX-License-Identifier: Apache-2.0

package tui

import (
	tea "charm.land/bubbletea/v2"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// actions are what the keys w and s do, in another goroutine.
type actions struct {
	profile   func(*ledger.Snapshot) (path string, err error) // as in Options
	capture   func(on bool) (path string, err error)
	capturing bool
	busy      bool       // one is at work
	status    *happening // what the latest did; nil: none, or it was long ago
	age       int        // of status, in moments
}

// doneMsg is what the key w or s did.
type doneMsg struct {
	text    string
	err     error
	capture bool // it was s
	on      bool
}

// maxStatus is for how many moments the result of w or s stays, unless something happens.
const maxStatus = 10

// take counts a moment.
func (a *actions) take(news bool) {
	if a.age++; news || a.age > maxStatus {
		a.status = nil
	}
}

// writeProfile has a profile written of what is shown.
func (a *actions) writeProfile(b *books) tea.Cmd {
	if a.profile == nil || b == nil || a.busy {
		a.tell(a.profile == nil, "no profile can be written here")
		return nil
	}
	a.busy = true
	write, s := a.profile, b.high()
	return func() tea.Msg {
		path, err := write(s)
		return doneMsg{text: "profile written: " + path, err: err}
	}
}

func (a *actions) toggleCapture() tea.Cmd {
	if a.capture == nil || a.busy {
		a.tell(a.capture == nil, "no capture can be started here")
		return nil
	}
	a.busy = true
	on, start := !a.capturing, a.capture
	return func() tea.Msg {
		path, err := start(on)
		text := "capture goes on until s: " + path
		if !on {
			text = "capture written: " + path
		}
		return doneMsg{text: text, err: err, capture: true, on: on}
	}
}

func (a *actions) tell(when bool, text string) {
	if when {
		a.status, a.age = &happening{text: text, style: warning}, 0
	}
}

func (a *actions) done(msg doneMsg) {
	a.busy, a.age = false, 0
	a.status = &happening{text: tidy(msg.text), style: good}
	if msg.err != nil {
		a.status = &happening{text: tidy(msg.err.Error()), style: alarm}
		return
	}
	if msg.capture {
		a.capturing = msg.on
	}
}

// draw returns what w and s did, else what happened last.
func (a *actions) draw(x *scene) string {
	h := a.status
	if h == nil {
		h = x.chronicle.last()
	}
	switch {
	case a.busy:
		return x.p.paint(dim, format.Cut("writing…", x.size.width))
	case h == nil:
		return ""
	}
	return x.p.paint(h.style, format.Cut(format.Join(h.clock, h.text), x.size.width))
}
