// SPDX-License-Identifier: Apache-2.0

package words

import (
	"strings"
	"unicode"
)

// Width is the width of s on a terminal: East Asian characters and emoji take
// two columns, combining marks none.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0x303e, r >= 0x3041 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0xffe0 && r <= 0xffe6,
		r >= 0x1f300 && r <= 0x1faff, r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

// Cut cuts s at the right so that it takes at most width columns.
func Cut(s string, width int) string {
	if len(s) <= width || Width(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// CutFront cuts s at the left.
func CutFront(s string, width int) string {
	surplus := Width(s) - width + 1
	if surplus <= 1 {
		return s
	}
	for i, r := range s {
		if surplus <= 0 {
			return "…" + s[i:]
		}
		surplus -= runeWidth(r)
	}
	return "…"
}

// Pad fills s with spaces to width columns, on the left if width is negative.
func Pad(s string, width int) string {
	if width < 0 {
		return strings.Repeat(" ", max(-width-Width(s), 0)) + s
	}
	return s + strings.Repeat(" ", max(width-Width(s), 0))
}
