// SPDX-License-Identifier: Apache-2.0

package format

import (
	"regexp"
	"strings"

	"github.com/mattn/go-runewidth"
)

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

// unit matches the unit of the figure before it: "MiB", "GiB/min)", "%".
var unit = regexp.MustCompile(`^(?:[KMGTPE]iB|B|%)(?:/\w+)?[),.;:]*$`)

// Words returns the words of a text, which lines do not break: a figure and its unit are one.
func Words(text string) (list []string) {
	for _, word := range strings.Fields(text) {
		if n := len(list) - 1; n >= 0 && unit.MatchString(word) && '0' <= list[n][len(list[n])-1] && list[n][len(list[n])-1] <= '9' {
			list[n] += " " + word
		} else {
			list = append(list, word)
		}
	}
	return list
}

// CutWords returns a sentence if it takes at most width columns, else its first words and "…": it
// cuts no figure, and none from its unit.
func CutWords(s string, width int) string {
	if Width(s) <= width {
		return s
	}
	list := Words(s)
	for n := len(list) - 1; n > 0; n-- {
		if text := strings.Join(list[:n], " ") + " …"; Width(text) <= width {
			return text
		}
	}
	return Cut(s, width)
}
