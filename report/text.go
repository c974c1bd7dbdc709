// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

const (
	defaultWidth = 80
	minWidth     = 20 // columns, of what is asked for
	narrowFrame  = 24 // a frame with less room beside its figure has a line of its own
)

// style is an SGR sequence for terminals that want colour.
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

// line writes one line, cut at the right if it is too long.
func (p *page) line(s style, indent int, text string) {
	text = fit(text, p.width-indent)
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

// text writes a sentence or a heading, and breaks lines between words.
func (p *page) text(s style, indent int, text string) {
	p.list(s, indent, " ", strings.Fields(text)...)
}

// list writes parts with separators between them and breaks lines between parts, and parts between words.
func (p *page) list(s style, indent int, sep string, parts ...string) {
	for _, line := range broken(p.width-indent, sep, parts) {
		p.line(s, indent, line)
	}
}

// paragraph breaks text between words; all lines are indented by the width of sign.
func (p *page) paragraph(sign, text string) {
	for i, line := range broken(p.width-columns(sign), " ", strings.Fields(text)) {
		if i == 0 {
			p.line(plain, 0, sign+line)
		} else {
			p.line(plain, columns(sign), line)
		}
	}
}

// broken joins the parts that are not empty into lines of at most width columns; a part that is longer is broken
// between its words, of which a single one can be longer.
func broken(width int, sep string, parts []string) []string {
	var lines []string
	line, end := "", strings.TrimRight(sep, " ")
	for i, part := range parts {
		room := width
		if i+1 < len(parts) { // what follows may begin a line
			room -= columns(end)
		}
		if part == "" {
			continue
		}
		if line != "" && columns(line)+columns(sep)+columns(part) <= room {
			line += sep + part
			continue
		}
		if line != "" {
			lines = append(lines, line+end)
		}
		if line = part; columns(part) > room {
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
		p.line(s, indent, frameText(&list[i], p.width-indent))
	}
}

// frameText fits a frame into width columns: paths lose their beginning, names their end.
func frameText(f *callstack.Frame, width int) string {
	front, back := frames.Parts(f)
	if back == "" {
		return fit(front, width)
	}
	room := width - 1
	if columns(front)+columns(back) > room {
		cutFront, cutBack := fit, fitEnd
		if f.Python {
			cutFront, cutBack = fitEnd, fit
		}
		half := room / 2
		switch {
		case columns(back) <= half:
			front = cutFront(front, room-columns(back))
		case columns(front) <= half:
			back = cutBack(back, room-columns(front))
		default:
			front, back = cutFront(front, room-half), cutBack(back, half)
		}
	}
	return front + " " + back
}

// columns is the width of s on a terminal: East Asian characters and emoji take
// two columns, combining marks none.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
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

// fit cuts s at the right so that it takes at most width columns.
func fit(s string, width int) string {
	if len(s) <= width || columns(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeColumns(r); n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// fitEnd cuts s at the left.
func fitEnd(s string, width int) string {
	surplus := columns(s) - width + 1
	if surplus <= 1 {
		return s
	}
	for i, r := range s {
		if surplus <= 0 {
			return "…" + s[i:]
		}
		surplus -= runeColumns(r)
	}
	return "…"
}

// pad fills s with spaces to width columns, on the left if width is negative.
func pad(s string, width int) string {
	if width < 0 {
		return strings.Repeat(" ", max(-width-columns(s), 0)) + s
	}
	return s + strings.Repeat(" ", max(width-columns(s), 0))
}

// sparkline draws values as bars, the last column being the last value.
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
