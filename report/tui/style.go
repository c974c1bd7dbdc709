// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/vramprof/vramprof/report"
)

// style is how a cell is drawn. What it means is always in the text, too.
type style uint8

const (
	plain style = iota
	bold
	dim
	chosen // the row of the cursor
	alarm
	warning
	good
	title
	styleTensor
	styleCache
	styleDriver
	styleRounding
	styleBefore
	styleUnexplained
	styleHost
	styleManaged
	styleSystem
	styleAsleep
	styles
)

// planes are in the order of columns and bars; what follows bars is in the sum of no GPU.
var planes = [...]struct {
	plane string
	name  string // for Options.Sort
	short string // as in report.PlaneName, where that is short
	fill  rune   // in a bar, so that it needs no colour
	style style
}{
	{report.PlaneTensor, "tensors", "tensors", '█', styleTensor},
	{report.PlaneCache, "cache", "cache", '▓', styleCache},
	{report.PlaneDriver, "other", report.PlaneName(report.PlaneDriver), '▒', styleDriver},
	{report.PlaneRounding, "rounding", "rounding", '▗', styleRounding},
	{report.PlaneBefore, "before", "before", '░', styleBefore},
	{report.PlaneUnexplained, "unexplained", "unexplained", '?', styleUnexplained},
	{report.PlaneHost, "host", "host", ' ', styleHost},
	{report.PlaneManaged, "managed", "managed", ' ', styleManaged},
	{report.PlaneSystem, "system", "system", ' ', styleSystem},
	{report.PlaneAsleep, "asleep", "asleep", ' ', styleAsleep},
}

const (
	tensorPlane = iota
	cachePlane
	driverPlane
	roundingPlane
	beforePlane
	unexplainedPlane
	hostPlane
	managedPlane
	systemPlane
	asleepPlane
	planeCount
	barPlanes = hostPlane // planes below it add up to what a GPU uses
)

func planeNumber(plane string) int {
	for i := range planes {
		if planes[i].plane == plane {
			return i
		}
	}
	return driverPlane
}

// colours are those of report/html, for light and dark terminals.
var colours = [styles][2]string{
	alarm:            {"#b3261e", "#ff8a80"},
	warning:          {"#8a5a00", "#e8a92b"},
	good:             {"#00694d", "#23b189"},
	styleTensor:      {"#0072b2", "#2a8fd0"},
	styleCache:       {"#3a93c9", "#9bd4f5"},
	styleDriver:      {"#b87f00", "#e8a92b"},
	styleRounding:    {"#8a6d1f", "#f3cf7a"},
	styleBefore:      {"#6f7782", "#8d95a3"},
	styleUnexplained: {"#a8437c", "#d68fb6"},
	styleHost:        {"#00694d", "#23b189"},
	styleManaged:     {"#b34f00", "#e8803a"},
	styleSystem:      {"#8c6d31", "#c9a45c"},
	styleAsleep:      {"#6a5acd", "#9d8ff0"},
}

// palette has the sequence that begins each style. A nil palette draws without any.
type palette [styles]string

func newPalette(dark bool) *palette {
	p := &palette{bold: ansi.NewStyle().Bold().String(), dim: ansi.NewStyle().Faint().String(), chosen: ansi.NewStyle().Reverse(true).String(), title: ansi.NewStyle().Bold().Reverse(true).String()}
	choose := lipgloss.LightDark(dark)
	for s, c := range colours {
		if c[0] != "" {
			p[s] = ansi.NewStyle().ForegroundColor(choose(lipgloss.Color(c[0]), lipgloss.Color(c[1]))).String()
		}
	}
	p[alarm] = ansi.NewStyle().Bold().String() + p[alarm]
	return p
}

func (p *palette) paint(s style, text string) string {
	if p == nil || p[s] == "" || text == "" {
		return text
	}
	return p[s] + text + ansi.ResetStyle
}

// painted collects cells of a line, with one sequence for neighbours of one style.
type painted struct {
	strings.Builder
	p  *palette
	at style
}

func (b *painted) rune(s style, r rune) {
	if b.p != nil && s != b.at {
		b.end()
		b.WriteString(b.p[s])
		b.at = s
	}
	b.WriteRune(r)
}

// end goes back to the terminal's own style.
func (b *painted) end() {
	if b.p != nil && b.at != plain {
		b.WriteString(ansi.ResetStyle)
	}
	b.at = plain
}
