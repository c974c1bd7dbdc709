// SPDX-License-Identifier: Apache-2.0

package format

import "github.com/mattn/go-runewidth"

// terminal measures text the same way in every locale: the same snapshot gives the same bytes.
var terminal = &runewidth.Condition{StrictEmojiNeutral: true}

// Width returns how many columns s takes on a terminal: East Asian characters and emoji take two,
// combining marks none.
func Width(s string) int { return terminal.StringWidth(s) }

// Cut returns s if it takes at most width columns, else its beginning and "…".
func Cut(s string, width int) string { return terminal.Truncate(s, width, "…") }

// CutFront returns s if it takes at most width columns, else "…" and its end.
func CutFront(s string, width int) string {
	if Width(s) <= width {
		return s
	}
	return terminal.TruncatePrefix(s, width, "…")
}

// Pad fills s with spaces up to width columns: on the right, or on the left if width is negative.
func Pad(s string, width int) string {
	if width < 0 {
		return terminal.FillLeft(s, -width)
	}
	return terminal.FillRight(s, width)
}
