// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	defaultWidth = 80
	minWidth     = 20 // columns of the narrowest screen
	narrowFrame  = 24 // least columns of a frame beside its figure; else it has a line of its own
)

// Style is how a line is drawn.
type Style uint8

const (
	plain Style = iota
	bold
	dim
	red
)

// Styles of lines, for screens that draw them themselves.
const (
	Plain = plain
	Bold  = bold
	Dim   = dim
	Alarm = red // a leak, a failure
)

// sequences are styles on terminals with color, as SGR.
var sequences = [...]string{bold: "\x1b[1m", dim: "\x1b[2m", red: "\x1b[31m"}

const reset = "\x1b[0m"

// Line is one line of a report, without control characters.
type Line struct {
	Style  Style
	Indent int // columns, none of an empty line
	Text   string
}

// page collects lines no wider than width columns.
type page struct {
	lines []Line
	width int
	color bool
	said  []string // advice that was written
}

// once returns advice, or "" if the page has its sentence already.
func (p *page) once(text string) string {
	if text == "" || slices.ContainsFunc(p.said, func(said string) bool { return strings.Contains(said, text) }) {
		return ""
	}
	p.said = append(p.said, text)
	return text
}

// Screen is where text goes.
type Screen struct {
	Width int  // columns of a line; 0: 80, at least 20
	Color bool // SGR sequences, for terminals
}

func newPage(screen Screen) *page {
	width := screen.Width
	if width <= 0 {
		width = defaultWidth
	}
	return &page{width: max(width, minWidth), color: screen.Color}
}

func (p *page) writeTo(w io.Writer) error {
	if _, err := io.WriteString(w, p.String()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// String returns the lines as a terminal gets them.
func (p *page) String() string {
	var b strings.Builder
	for i := range p.lines {
		l := &p.lines[i]
		b.WriteString(strings.Repeat(" ", l.Indent))
		if p.color && l.Style != plain {
			b.WriteString(sequences[l.Style] + l.Text + reset)
		} else {
			b.WriteString(l.Text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// line writes one line, cut at the right to the width of the page.
func (p *page) line(s Style, indent int, text string) {
	l := Line{Style: s, Indent: indent, Text: format.Cut(text, p.width-indent)}
	if l.Text == "" {
		l = Line{}
	}
	p.lines = append(p.lines, l)
}

// text writes a sentence or heading, broken between words.
func (p *page) text(s Style, indent int, text string) {
	p.list(s, indent, " ", format.Words(text)...)
}

// list writes parts with separators, broken between parts, and long parts between words.
func (p *page) list(s Style, indent int, sep string, parts ...string) {
	for _, line := range broken(p.width-indent, sep, parts) {
		p.line(s, indent, line)
	}
}

// paragraph writes text broken between words; all lines are indented by the width of sign.
func (p *page) paragraph(sign, text string) {
	for i, line := range broken(p.width-format.Width(sign), " ", format.Words(text)) {
		if i == 0 {
			p.line(plain, 0, sign+line)
		} else {
			p.line(plain, format.Width(sign), line)
		}
	}
}

// broken joins the nonempty parts into lines of at most width columns. A longer part is broken
// between its words; a single word can be longer.
func broken(width int, sep string, parts []string) []string {
	var lines []string
	line, end := "", strings.TrimRight(sep, " ")
	for i, part := range parts {
		room := width
		if i+1 < len(parts) { // the next part may begin a line
			room -= format.Width(end)
		}
		if part == "" {
			continue
		}
		if line != "" && format.Width(line)+format.Width(sep)+format.Width(part) <= room {
			line += sep + part
			continue
		}
		if line != "" {
			lines = append(lines, line+end)
		}
		if line = part; format.Width(part) > room {
			if list := format.Words(part); len(list) > 1 {
				rows := broken(room, " ", list)
				lines, line = append(lines, rows[:len(rows)-1]...), rows[len(rows)-1]
			}
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// stack writes the frames of a stack; own is the one in the user's code.
func (p *page) stack(list []callstack.Frame, own int) {
	const indent = siteIndent + 2
	for i := range list {
		s := dim
		if i == own {
			s = plain
		}
		p.line(s, indent, frames.Text(&list[i], p.width-indent))
	}
}

// sparkline draws values as bars; the last column is the last value.
func sparkline(values []uint64, columns int) string {
	var peak uint64
	for _, v := range values {
		peak = max(peak, v)
	}
	if len(values) < columns || peak == 0 {
		return ""
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	out := make([]rune, columns)
	for i := range out {
		v := values[(i+1)*len(values)/columns-1]
		out[i] = bars[int(float64(v)/float64(peak)*float64(len(bars)-1)+0.5)]
	}
	return string(out)
}
