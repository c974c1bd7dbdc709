// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
)

// column is one figure or name of rows.
type column[R any] struct {
	name  string // for Options.Sort
	title string
	width int  // of a flexible one the least
	flex  bool // takes what is left
	left  bool // names; figures stand at the right
	drop  int  // where there is no room, the column with the highest goes first; 0: never
	text  func(r *R, width int) string
	order func(a, b *R) int // what comes first
	style func(r *R) style  // nil: plain
}

// fit returns the columns that have room, with their widths.
func fit[R any](list []column[R], width int) []column[R] {
	list = slices.Clone(list)
	for {
		sum, flexible := -1, 0
		for i := range list {
			sum += list[i].width + 1
			if list[i].flex {
				flexible++
			}
		}
		if sum <= width {
			for i := range list {
				if list[i].flex {
					share := (width - sum) / flexible
					list[i].width, sum = list[i].width+share, sum+share
					flexible--
				}
			}
			return list
		}
		last := -1
		for i := range list {
			if list[i].drop > 0 && (last < 0 || list[i].drop > list[last].drop) {
				last = i
			}
		}
		if last < 0 { // the rest is cut
			list[len(list)-1].width = max(list[len(list)-1].width-(sum-width), 1)
			return list
		}
		list = slices.Delete(list, last, last+1)
	}
}

// cell fills a cell to its width.
func cell(text string, width int, left bool) string {
	text = format.Cut(text, width)
	if left {
		return format.Pad(text, width)
	}
	return format.Pad(text, -width)
}

// header returns the titles; the one that rows are sorted by has an arrow.
func header[R any](list []column[R], p *palette, by string, reversed bool, width int) string {
	var b strings.Builder
	for i := range list {
		c := &list[i]
		if i > 0 {
			b.WriteByte(' ')
		}
		title := c.title
		if c.name == by {
			arrow := "▼"
			if reversed {
				arrow = "▲"
			}
			title = format.Cut(title, max(c.width-1, 0)) + arrow
		}
		b.WriteString(cell(title, c.width, c.left))
	}
	return p.paint(bold, format.Cut(b.String(), width))
}

// row returns the cells of a row.
func row[R any](list []column[R], p *palette, r *R, at bool, width int) string {
	var b strings.Builder
	for i := range list {
		c := &list[i]
		if i > 0 {
			b.WriteByte(' ')
		}
		text := cell(c.text(r, c.width), c.width, c.left)
		if c.style != nil && !at {
			text = p.paint(c.style(r), text)
		}
		b.WriteString(text)
	}
	line := b.String()
	if at {
		return p.paint(chosen, format.Pad(format.Cut(line, width), width))
	}
	return line
}

// sortRows returns rows sorted by a column. Equal ones keep their order.
func sortRows[R any](rows []R, list []column[R], by string, reversed bool) []R {
	i := slices.IndexFunc(list, func(c column[R]) bool { return c.name == by })
	if i < 0 {
		return rows
	}
	order := list[i].order
	at := make([]int32, len(rows)) // rows are large: move each once
	for i := range at {
		at[i] = int32(i)
	}
	slices.SortFunc(at, func(a, b int32) int {
		x, y := &rows[a], &rows[b]
		if reversed {
			x, y = y, x
		}
		return cmp.Or(order(x, y), cmp.Compare(a, b))
	})
	sorted := make([]R, len(rows))
	for i, k := range at {
		sorted[i] = rows[k]
	}
	return sorted
}

// most orders by a figure, the highest first.
func most[R any, N cmp.Ordered](of func(*R) N) func(a, b *R) int {
	return func(a, b *R) int { return cmp.Compare(of(b), of(a)) }
}

// least orders by a name or number, the lowest first.
func least[R any, N cmp.Ordered](of func(*R) N) func(a, b *R) int {
	return func(a, b *R) int { return cmp.Compare(of(a), of(b)) }
}

// cursor is where the user is in a list, and the first row that is visible.
type cursor struct {
	at, from int
}

// move goes by n rows within a list of that many.
func (c *cursor) move(n, rows int) { c.at = max(0, min(c.at+n, rows-1)) }

// show scrolls so that the cursor is within a height.
func (c *cursor) show(rows, height int) {
	c.at = max(0, min(c.at, rows-1))
	c.from = max(0, min(c.from, rows-height))
	if c.at < c.from {
		c.from = c.at
	}
	if height > 0 && c.at >= c.from+height {
		c.from = c.at - height + 1
	}
}
