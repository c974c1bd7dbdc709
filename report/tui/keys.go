// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"charm.land/bubbles/v2/key"
)

// keys are what the screen does, in the order of the help.
type keys struct {
	moveKeys
	viewKeys
	orderKeys
	quit, help, open, back, filter, freeze           key.Binding
	doubts, profile, capture, nextStack, previousOne key.Binding
}

// moveKeys move the cursor, and fold and unfold branches.
type moveKeys struct {
	up, down, pageUp, pageDown, home, end, left, right key.Binding
}

// viewKeys choose a view.
type viewKeys struct {
	next, previous, gpus, processes, lines, timeline key.Binding
}

// orderKeys choose which rows a view has, and their order.
type orderKeys struct {
	sortLeft, sortRight, reverse, tree, merge key.Binding
}

func bind(help, does string, names ...string) key.Binding {
	return key.NewBinding(key.WithKeys(names...), key.WithHelp(help, does))
}

var bound = keys{
	moveKeys: moveKeys{
		up:       bind("↑ k", "up", "up", "k"),
		down:     bind("↓ j", "down", "down", "j"),
		pageUp:   bind("PgUp", "a page up", "pgup", "ctrl+b"),
		pageDown: bind("PgDn", "a page down", "pgdown", "ctrl+f"),
		home:     bind("Home g", "to the first", "home", "g"),
		end:      bind("End G", "to the last", "end", "G"),
		left:     bind("← h", "fold a branch", "left", "h"),
		right:    bind("→ l", "unfold a branch", "right", "l"),
	},
	viewKeys: viewKeys{
		next:      bind("Tab", "next view", "tab"),
		previous:  bind("Shift-Tab", "previous view", "shift+tab"),
		gpus:      bind("1", "GPUs", "1"),
		processes: bind("2", "processes", "2"),
		lines:     bind("3", "lines of code", "3"),
		timeline:  bind("4", "timeline", "4"),
	},
	orderKeys: orderKeys{
		sortLeft:  bind("<", "sort by the column before", "<", ","),
		sortRight: bind(">", "sort by the next column", ">", "."),
		reverse:   bind("r", "reverse the order", "r"),
		tree:      bind("t", "tree or list", "t"),
		merge:     bind("m", "merge processes", "m"),
	},
	quit:        bind("q", "quit", "q", "ctrl+c"),
	help:        bind("?", "help", "?", "f1"),
	open:        bind("Enter", "open", "enter"),
	back:        bind("Esc", "back", "esc", "backspace"),
	filter:      bind("/", "filter", "/"),
	freeze:      bind("Space", "freeze the display", "space", " "),
	doubts:      bind("d", "doubts and remarks", "d"),
	profile:     bind("w", "write a profile", "w"),
	capture:     bind("s", "keep a capture, or end it", "s"),
	nextStack:   bind("n", "next stack", "n", "right", "l"),
	previousOne: bind("p", "previous stack", "p", "left", "h"),
}
