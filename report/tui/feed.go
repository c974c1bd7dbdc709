// SPDX-License-Identifier: Apache-2.0

package tui

import tea "charm.land/bubbletea/v2"

// feed sums up moments, one at a time, in another goroutine: stacks may need names.
type feed struct {
	reader  *reader
	reading bool    // a moment is summed up
	pending *Moment // the next one
}

// booksMsg is a moment, summed up.
type booksMsg struct{ books *books }

// receive has a moment summed up. While one is, only the newest waits.
func (f *feed) receive(x Moment) tea.Cmd {
	if f.reading {
		if f.pending != nil {
			x = f.pending.above(x)
			x.OOMs = append(f.pending.OOMs[:len(f.pending.OOMs):len(f.pending.OOMs)], x.OOMs...)
			if x.Note == "" {
				x.Note = f.pending.Note
			}
		}
		f.pending = &x
		return nil
	}
	f.reading = true
	r := f.reader
	return func() tea.Msg { return booksMsg{r.read(x)} }
}

// next ends a moment, and has the one that waits summed up, if one does.
func (f *feed) next() tea.Cmd {
	f.reading = false
	if f.pending == nil {
		return nil
	}
	x := *f.pending
	f.pending = nil
	return f.receive(x)
}
