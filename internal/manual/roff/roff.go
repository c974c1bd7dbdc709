// SPDX-License-Identifier: Apache-2.0

// Package roff writes man pages.
package roff

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/internal/manual"
)

// Head is what begins a man page.
type Head struct {
	Name    string // "vramprof-record"
	Section int
	Subject string // one line
}

// Writer writes a man page.
type Writer struct {
	out strings.Builder
}

// New returns a writer that has written the head of a page. Compare sets its date.
func New(h Head) *Writer {
	w := &Writer{}
	w.out.WriteString(".\\\" SPDX-License-Identifier: Apache-2.0\n.\\\" Code generated from the documents and the help of the commands. DO NOT EDIT.\n")
	fmt.Fprintf(&w.out, ".TH %s %d DATE vramprof \"vramprof manual\"\n", strings.ToUpper(h.Name), h.Section)
	w.out.WriteString(".nh\n.ad l\n.SH NAME\n")
	w.line(escape(h.Name) + ` \- ` + escape(h.Subject))
	return w
}

// String returns the page.
func (w *Writer) String() string { return w.out.String() }

// Section begins a section.
func (w *Writer) Section(title string) {
	w.out.WriteString(".SH " + quote(strings.ToUpper(title)) + "\n")
}

// Text writes a paragraph.
func (w *Writer) Text(text string) { w.Blocks([]manual.Block{paragraph(text)}) }

// Item writes a term and what it means below it.
func (w *Writer) Item(term, meaning string) {
	w.out.WriteString(".TP\n")
	w.line(`\fB` + escape(term) + `\fR`)
	w.line(escape(meaning))
}

// See writes the references to other pages, such as "vramprof-planes(7)".
func (w *Writer) See(pages []string) {
	if len(pages) == 0 {
		return
	}
	w.Section("See also")
	for i, page := range pages {
		name, section, _ := strings.Cut(page, "(")
		end := ")"
		if i < len(pages)-1 {
			end = "),"
		}
		fmt.Fprintf(&w.out, ".BR %s (%s%s\n", escape(name), strings.TrimSuffix(section, ")"), end)
	}
}

// Reference returns how man pages refer to a page: "vramprof-planes(7)".
func Reference(page string) string {
	if page == Main {
		return "vramprof(1)"
	}
	return "vramprof-" + page + "(7)"
}

// Main is the page whose text is in vramprof(1).
const Main = "usage"

// Document writes the blocks of a page. What stands before its first heading becomes a description.
func (w *Writer) Document(d manual.Document) {
	if len(d.Blocks) > 0 && d.Blocks[0].Kind != manual.Heading {
		w.Section("Description")
	}
	w.Blocks(d.Blocks)
}

// Blocks writes blocks.
func (w *Writer) Blocks(list []manual.Block) {
	for i, b := range list {
		switch b.Kind {
		case manual.Heading:
			w.heading(b)
		case manual.Paragraph:
			if !strings.HasPrefix(w.last(), ".S") && i > 0 {
				w.out.WriteString(".PP\n")
			}
			w.line(runs(b.Text))
		case manual.List:
			w.list(b)
		case manual.Code:
			w.code(b.Lines)
		case manual.Table:
			w.table(b.Rows)
		}
	}
}

func (w *Writer) heading(b manual.Block) {
	if b.Level <= 2 {
		w.Section(manual.Text(b.Text))
		return
	}
	w.out.WriteString(".SS " + quote(manual.Text(b.Text)) + "\n")
}

func (w *Writer) list(b manual.Block) {
	for i, item := range b.Items {
		mark := `\(bu`
		if b.First > 0 {
			mark = fmt.Sprintf("%d.", b.First+i)
		}
		fmt.Fprintf(&w.out, ".IP %s 3\n", mark)
		for j, inner := range item {
			if j == 0 && inner.Kind == manual.Paragraph {
				w.line(runs(inner.Text))
				continue
			}
			w.out.WriteString(".RS 3\n")
			w.Blocks([]manual.Block{inner})
			w.out.WriteString(".RE\n")
		}
	}
}

// last returns the last line.
func (w *Writer) last() string {
	lines := strings.TrimRight(w.out.String(), "\n")
	return lines[strings.LastIndexByte(lines, '\n')+1:]
}

func (w *Writer) code(lines []string) {
	if !strings.HasPrefix(w.last(), ".S") { // a paragraph begins after headings
		w.out.WriteString(".PP\n")
	}
	w.out.WriteString(".in +2n\n.EX\n")
	for _, line := range lines {
		w.whole(escape(line))
	}
	w.out.WriteString(".EE\n.in\n")
}

// table writes each row as its first cell, with the others below it: columns would not fit a
// narrow terminal.
func (w *Writer) table(rows [][]manual.Cell) {
	for _, row := range rows[1:] {
		w.out.WriteString(".TP\n")
		w.line(runs(row[0]))
		written := false
		for j, cell := range row[1:] {
			if len(cell) == 0 {
				continue
			}
			if written {
				w.out.WriteString(".br\n")
			}
			text := runs(cell)
			if len(row) > 2 {
				text = escape(manual.Text(rows[0][j+1])) + ": " + text
			}
			w.line(text)
			written = true
		}
		if !written {
			w.line(`\&`)
		}
	}
}

// mostBytes is the length beyond which mandoc complains about lines.
const mostBytes = 79

// line writes text in short lines, which man pages fill. No control character begins one.
func (w *Writer) line(text string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > mostBytes {
			w.whole(line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	w.whole(line)
}

// whole writes one line as it is.
func (w *Writer) whole(line string) {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	w.out.WriteString(line + "\n")
}

// fonts switch to a style.
var fonts = map[manual.Style]string{manual.Literal: `\fB`, manual.Strong: `\fB`, manual.Emphasis: `\fI`}

// runs returns text with its styles.
func runs(list []manual.Run) string {
	var b strings.Builder
	for _, r := range list {
		if font, ok := fonts[r.Style]; ok {
			b.WriteString(font + escape(r.Text) + `\fR`)
		} else {
			b.WriteString(escape(r.Text))
		}
	}
	return strings.TrimSpace(b.String())
}

// escape returns text as roff reads it: characters beyond ASCII by number, and "-" as users type
// it.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '\'':
			b.WriteString(`\(aq`)
		case r == '`':
			b.WriteString("\\(ga")
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r > 126:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// quote returns the argument of a macro.
func quote(text string) string { return `"` + strings.ReplaceAll(escape(text), `"`, `\(dq`) + `"` }

func paragraph(text string) manual.Block {
	return manual.Block{Kind: manual.Paragraph, Text: []manual.Run{{Text: text}}}
}
