// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Columns by which text below headings, items of lists, and code are indented.
const (
	bodyIndent = 2
	itemIndent = 2
	codeIndent = 2
)

// Write writes a document as text of at most width columns, except code, whose lines stay whole.
// Styled text has the sequences of a terminal; plain text marks code with backticks.
func Write(w io.Writer, d Document, width int, styled bool) error {
	t := &terminal{width: width, styled: styled}
	t.paragraph(strong(d.Title), 0)
	t.blocks(d.Blocks, bodyIndent)
	if len(d.See) > 0 {
		t.blank()
		t.paragraph([]Run{{"See also: vramprof help " + strings.Join(d.See, ", "), Plain}}, 0)
	}
	_, err := io.WriteString(w, t.out.String())
	return err
}

type terminal struct {
	out    strings.Builder
	width  int
	styled bool
}

func (t *terminal) blank() { t.out.WriteByte('\n') }

func (t *terminal) blocks(list []Block, indent int) {
	for i, b := range list {
		if i > 0 || indent <= bodyIndent {
			t.blank()
		}
		switch b.Kind {
		case Heading:
			t.paragraph(strong(b.Text), max(b.Level-2, 0))
		case Paragraph:
			t.paragraph(b.Text, indent)
		case List:
			t.list(b, indent)
		case Code:
			t.code(b.Lines, indent+codeIndent)
		case Table:
			t.table(b.Rows, indent)
		}
	}
}

// code writes lines as they are. It indents them less where they would not fit.
func (t *terminal) code(lines []string, indent int) {
	for _, line := range lines {
		indent = max(min(indent, t.width-utf8.RuneCountInString(line)), 0)
	}
	for _, line := range lines {
		t.out.WriteString(strings.TrimRight(strings.Repeat(" ", indent)+line, " ") + "\n")
	}
}

func (t *terminal) paragraph(runs []Run, indent int) {
	for _, line := range t.wrap(runs, t.width-indent) {
		t.out.WriteString(strings.Repeat(" ", indent) + t.render(line) + "\n")
	}
}

// list writes "- text" with the lines of text in one column.
func (t *terminal) list(b Block, indent int) {
	for i, item := range b.Items {
		mark := "- "
		if b.First > 0 {
			mark = fmt.Sprintf("%d. ", b.First+i)
		}
		inner := &terminal{width: t.width, styled: t.styled}
		inner.blocks(item, indent+max(len(mark), itemIndent))
		body := strings.TrimLeft(inner.out.String(), " \n")
		t.out.WriteString(strings.Repeat(" ", indent) + mark + body)
	}
}

// leastColumn is the width in columns from which the text in a table's column can be read.
const leastColumn = 16

// gap is the number of columns between two columns of a table.
const gap = 2

// table writes a table in columns, or where they would be too narrow, one row below the other.
func (t *terminal) table(rows [][]Cell, indent int) {
	widths, ok := t.columns(rows, t.width-indent)
	if !ok {
		t.stacked(rows, indent)
		return
	}
	margin := strings.Repeat(" ", indent)
	for i, row := range rows {
		cells, height := make([][][]Run, len(row)), 0
		for j, cell := range row {
			if i == 0 {
				cell = strong(cell)
			}
			cells[j] = t.wrap(cell, widths[j])
			height = max(height, len(cells[j]))
		}
		for line := range height {
			t.out.WriteString(strings.TrimRight(margin+t.line(cells, widths, line), " ") + "\n")
		}
	}
}

// line returns one line of a row of a table.
func (t *terminal) line(cells [][][]Run, widths []int, line int) string {
	var b strings.Builder
	for j, cell := range cells {
		n := 0
		if line < len(cell) {
			b.WriteString(t.render(cell[line]))
			n = columnsOf(cell[line])
		}
		if j < len(cells)-1 {
			b.WriteString(strings.Repeat(" ", widths[j]-n+gap))
		}
	}
	return b.String()
}

// columns returns the width of each column of a table: what its cells need, or else a share of
// the room. It reports false if a column that has to be broken becomes too narrow.
func (t *terminal) columns(rows [][]Cell, width int) ([]int, bool) {
	n := len(rows[0])
	widths, words := make([]int, n), make([]int, n)
	for i, row := range rows {
		for j, cell := range row {
			if i == 0 {
				cell = strong(cell)
			}
			needed := -1
			for _, w := range t.split(cell) {
				n := columnsOf(w.runs)
				words[j] = max(words[j], n)
				needed += 1 + n
			}
			widths[j] = max(widths[j], needed)
		}
	}
	room := width - gap*(n-1)
	for sum(widths) > room { // take from the widest
		widest := 0
		for j := range widths {
			if widths[j] > widths[widest] {
				widest = j
			}
		}
		least := max(min(words[widest], width/3), leastColumn)
		if widths[widest] <= least {
			return nil, false
		}
		widths[widest]--
	}
	return widths, true
}

// stacked writes each row as its first cell, with the others below it as "column: text".
func (t *terminal) stacked(rows [][]Cell, indent int) {
	names := rows[0]
	for _, row := range rows[1:] {
		t.paragraph(strong(row[0]), indent)
		for j, cell := range row[1:] {
			if len(cell) == 0 {
				continue
			}
			if len(row) > 2 {
				cell = append(Cell{{Text(names[j+1]) + ": ", Plain}}, cell...)
			}
			t.paragraph(cell, indent+2*itemIndent)
		}
	}
}

// wrap breaks text into lines of at most width columns.
func (t *terminal) wrap(runs []Run, width int) (lines [][]Run) {
	var line []Run
	used := 0
	for _, w := range t.split(runs) {
		word := w.runs
		n := columnsOf(word)
		if used > 0 && used+1+n > width {
			lines, line, used = append(lines, line), nil, 0
		}
		if used > 0 {
			line = append(line, Run{" ", w.space})
			used++
		}
		for n > width { // such as a path, in a narrow cell
			head, tail := cut(word, width)
			lines, word = append(lines, head), tail
			n = columnsOf(word)
		}
		line = append(line, word...)
		used += n
	}
	return append(lines, line)
}

// cut divides a word after width columns.
func cut(word []Run, width int) (head, tail []Run) {
	for i, r := range word {
		n := columnsOf(word[:i+1])
		if n <= width {
			continue
		}
		text := []rune(r.Text)
		keep := min(max(len(text)-(n-width), 1), len(text))
		head = append(append(head, word[:i]...), Run{string(text[:keep]), r.Style})
		return head, append([]Run{{string(text[keep:]), r.Style}}, word[i+1:]...)
	}
	return word, nil
}

// word is text without spaces, perhaps of several styles: "`a`,".
type word struct {
	runs  []Run
	space Style // of the space before it
}

// split divides text into words. In plain text, backticks surround code.
func (t *terminal) split(runs []Run) (words []word) {
	var w word
	end := func(style Style) {
		if len(w.runs) > 0 {
			words = append(words, w)
		}
		w = word{space: style}
	}
	for _, r := range runs {
		if r.Style == Literal && !t.styled {
			r = Run{"`" + r.Text + "`", Plain}
		}
		for i, part := range strings.Split(r.Text, " ") {
			if i > 0 {
				end(r.Style)
			}
			if part != "" {
				w.runs = append(w.runs, Run{part, r.Style})
			}
		}
	}
	end(Plain)
	return words
}

// columnsOf returns the columns that text takes.
func columnsOf(runs []Run) int { return utf8.RuneCountInString(Text(runs)) }

// sequences switch a style on and off.
var sequences = [...][2]string{Literal: {"\x1b[1m", "\x1b[22m"}, Strong: {"\x1b[1m", "\x1b[22m"}, Emphasis: {"\x1b[4m", "\x1b[24m"}}

// render returns one line of text with its styles.
func (t *terminal) render(runs []Run) string {
	var b strings.Builder
	for i := 0; i < len(runs); {
		style, text := runs[i].Style, ""
		for ; i < len(runs) && runs[i].Style == style; i++ {
			text += runs[i].Text
		}
		if t.styled {
			text = sequences[style][0] + text + sequences[style][1]
		}
		b.WriteString(text)
	}
	return b.String()
}

// strong returns text in bold, except what has a style of its own.
func strong(runs []Run) []Run {
	list := make([]Run, len(runs))
	for i, r := range runs {
		if list[i] = r; r.Style == Plain {
			list[i].Style = Strong
		}
	}
	return list
}

func sum(list []int) (total int) {
	for _, n := range list {
		total += n
	}
	return total
}
