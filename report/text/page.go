// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
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

// style is an SGR sequence for terminals with color.
type style string

const (
	plain style = ""
	bold  style = "\x1b[1m"
	dim   style = "\x1b[2m"
	red   style = "\x1b[31m"
	reset       = "\x1b[0m"
)

// page collects lines no wider than width columns.
type page struct {
	strings.Builder
	width int
	color bool
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

// line writes one line, cut at the right to the width of the page.
func (p *page) line(s style, indent int, text string) {
	text = format.Cut(text, p.width-indent)
	if text == "" {
		p.WriteByte('\n')
		return
	}
	p.WriteString(strings.Repeat(" ", indent))
	if p.color && s != plain {
		text = string(s) + text + reset
	}
	p.WriteString(text + "\n")
}

// text writes a sentence or heading, broken between words.
func (p *page) text(s style, indent int, text string) {
	p.list(s, indent, " ", strings.Fields(text)...)
}

// list writes parts with separators, broken between parts, and long parts between words.
func (p *page) list(s style, indent int, sep string, parts ...string) {
	for _, line := range broken(p.width-indent, sep, parts) {
		p.line(s, indent, line)
	}
}

// paragraph writes text broken between words; all lines are indented by the width of sign.
func (p *page) paragraph(sign, text string) {
	for i, line := range broken(p.width-format.Width(sign), " ", strings.Fields(text)) {
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
			if words := strings.Fields(part); len(words) > 1 {
				rows := broken(room, " ", words)
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
