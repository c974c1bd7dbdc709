// SPDX-License-Identifier: Apache-2.0

// Package terminal describes the terminal of the user, and fits text to it.
package terminal

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"

	"github.com/vramprof/vramprof/report/text"
)

// Is reports whether what is written to w is for a person to see.
func Is(w io.Writer) bool {
	f, ok := File(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Columns of text output: width is at least leastColumns, at most mostColumns, and UsualColumns
// without a terminal.
const leastColumns, mostColumns, UsualColumns = 20, 1000, 80

// Width returns the number of columns to fill: COLUMNS, the width of the
// terminal on stdout, or 80.
func Width() int {
	w, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil || w <= 0 {
		w, _, err = term.GetSize(int(os.Stdout.Fd()))
	}
	if err != nil || w <= 0 {
		return UsualColumns
	}
	return min(max(w, leastColumns), mostColumns)
}

// LineWidth returns how many columns of a terminal a line may fill without wrapping.
func LineWidth(w io.Writer) int {
	columns := UsualColumns
	if f, ok := File(w).(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			columns = n
		}
	}
	return max(columns-1, 1)
}

// Screen returns the terminal that stdout is, or what stands for one.
func Screen() text.Screen { return text.Screen{Width: Width(), Color: Colors()} }

// Colors reports whether to color stdout.
func Colors() bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Is(os.Stdout)
}
