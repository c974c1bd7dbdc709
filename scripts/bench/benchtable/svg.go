// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"fmt"
	"strings"
)

const pictureWidth = 800

// The colors follow the reader's light or dark theme; programs without themes show the light one.
// Fonts are the reader's own.
const pictureStyle = `
  text { font: 13px system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 } .panel { font-weight: 600 } .quiet { font-size: 12px; fill: #59636e }
  .back { fill: #ffffff } .mine { fill: #0969da } .other { fill: #8c96a0 } .floor { fill: #d1d9e0 }
  .line { stroke: #d1d9e0 } .range { stroke: #1f2328; opacity: .55 }
  .ring { fill: none; stroke: #cf222e; stroke-width: 2 } .half { fill: none; stroke: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 }
    .back { fill: #0d1117 } .mine { fill: #4493f8 } .other { fill: #6e7681 } .floor { fill: #3d444d }
    .line { stroke: #3d444d } .range { stroke: #e6edf3 }
    .ring { stroke: #f85149 } .half { stroke: #9198a1 }
  }
`

// svg builds a picture from top to bottom; y is where the next element goes.
type svg struct {
	body strings.Builder
	y    float64
}

func (s *svg) text(class, anchor string, x, y float64, text string) {
	s.body.WriteString(fmt.Sprintf("<text class=%q text-anchor=%q x=\"%.0f\" y=\"%.0f\">", class, anchor, x, y))
	_ = xml.EscapeText(&s.body, []byte(text)) // a strings.Builder returns no errors
	s.body.WriteString("</text>\n")
}

func (s *svg) rectangle(class string, x, y, width, height float64) {
	fmt.Fprintf(&s.body, "<rect class=%q x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"2\"/>\n", class, x, y, width, height)
}

func (s *svg) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&s.body, "<line class=%q x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", class, x1, y1, x2, y2)
}

func (s *svg) title(title, subtitle string) {
	s.text("title", "start", 16, 28, title)
	s.text("quiet", "start", 16, 48, subtitle)
	s.y = 60
}

// String returns the file. The description is for readers who do not see the picture.
func (s *svg) file(description string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(description))
	height := s.y + 12
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%[1]d\" height=\"%.0[2]f\" role=\"img\">\n<title>%s</title>\n<style>%s</style>\n"+
		"<rect class=\"back\" width=\"%[1]d\" height=\"%.0[2]f\"/>\n%[5]s</svg>\n", pictureWidth, height, escaped.String(), pictureStyle, s.body.String())
}

// bar is a row of a panel. Low and high are those of the rounds.
type bar struct {
	class, label, value string
	figure
}

const (
	barLeft  = 230.0
	barRight = 600.0 // the longest bar ends here; its value follows
)

// panel draws bars from zero on one scale.
func (s *svg) panel(title string, bars []bar) {
	most := 0.0
	for _, b := range bars {
		most = max(most, b.high)
	}
	s.y += 22
	s.text("panel", "start", 16, s.y, title)
	s.y += 10
	for _, b := range bars {
		x := func(v float64) float64 { return barLeft + max(0, v)/most*(barRight-barLeft) }
		s.text("", "end", barLeft-10, s.y+14, b.label)
		s.rectangle(b.class, barLeft, s.y+2, max(1, x(b.median)-barLeft), 16)
		if b.high > b.low {
			s.line("range", x(b.low), s.y+10, x(b.high), s.y+10)
		}
		s.text("", "start", max(x(b.median), x(b.high))+8, s.y+14, b.value)
		s.y += 23
	}
}
