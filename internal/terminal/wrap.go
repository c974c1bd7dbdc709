// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"strings"
	"unicode/utf8"

	"github.com/vramprof/vramprof/report/format"
)

// Hanging breaks text into lines of at most width columns and indents all but the first, which
// begins in the column indent.
func Hanging(text string, width, indent int) string { return HangingFrom(indent, text, width, indent) }

// HangingFrom is Hanging for a first line that begins in another column.
func HangingFrom(column int, sentence string, width, indent int) string {
	var b strings.Builder
	for i, word := range format.Words(sentence) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}
