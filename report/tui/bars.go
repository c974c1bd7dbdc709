// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"fmt"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
)

// gpuBars returns the GPUs above the views, a line each.
func (x *scene) gpuBars() []string {
	b, s := x.b, x.size
	if s.gpus == 0 {
		return nil
	}
	list := make([]string, 0, s.gpus)
	for i := range b.gpus[:s.gpus] {
		if i == s.gpus-1 && len(b.gpus) > s.gpus {
			list = append(list, x.p.paint(dim, format.Cut(fmt.Sprintf("   %s (1 shows them)", format.Count(uint64(len(b.gpus)-i), "more GPU")), s.width)))
			break
		}
		line, _ := x.gpuBar(&b.gpus[i])
		list = append(list, line)
	}
	return list
}

const leastBar = 8 // columns

// gpuBar returns "GPU 0 [████▓▒░∙    ] 38.0 of 79.6 GiB 48% +1.2 GiB/min full in 12m",
// without the bar where it has no room.
func (x *scene) gpuBar(g *gpu) (line string, hasBar bool) {
	width := x.size.width
	name := cell("GPU "+g.label, 5+max(x.b.labelWidth(), 2), true)
	figures := " " + format.Pad(format.Bytes(g.used), -8) + " of " + format.Pad(totalText(g.total), -8) + " " + format.Pad(shareText(g), -4)
	if g.total == 0 { // there is nothing to compare with
		return x.p.paint(plain, format.Cut(name+format.Bytes(g.used)+", its size is unknown", width)), false
	}
	tail, s := "", plain
	if full := g.fullText(); full != "" {
		tail, s = "  full in "+format.Pad(full, 6), fullStyle(g)
	}
	room := width - format.Width(name) - format.Width(figures) - 2
	if width >= 90 { // bars of all GPUs have one length
		room -= 16
		tail = format.Pad(tail, 16)
	} else if room-format.Width(tail) < leastBar {
		tail = ""
	} else {
		room -= format.Width(tail)
	}
	room = min(room, 100)
	if room < leastBar {
		return x.p.paint(shareStyle(g), format.Cut(strings.TrimRight(name+figures, " "), width)), false
	}
	return x.p.paint(bold, name) + x.p.bar(g, room) + x.p.paint(shareStyle(g), figures) + x.p.paint(s, strings.TrimRight(tail, " ")), true
}

// untraced memory stands at the end of what is used.
const untracedFill = '∙'

// beyondFill marks in a legend what no bar has.
const beyondFill = '+'

// bar draws what a GPU uses: each plane with its sign and colour, then what is not traced.
func (p *palette) bar(g *gpu, width int) string {
	b := painted{p: p}
	b.WriteByte('[')
	inner := width
	whole := max(float64(g.total), float64(g.used), 1)
	drawn, sum := 0, 0.0
	fill := func(s style, r rune, bytes int64) {
		if bytes <= 0 {
			return
		}
		sum += float64(bytes)
		to := min(int(sum/whole*float64(inner)+0.5), inner)
		for ; drawn < to; drawn++ {
			b.rune(s, r)
		}
	}
	for k := range barPlanes {
		fill(planes[k].style, planes[k].fill, g.planes[k])
	}
	fill(dim, untracedFill, int64(g.untraced))
	b.end()
	b.WriteString(strings.Repeat(" ", inner-drawn) + "]")
	return b.String()
}

// legend returns "█ tensors  ▓ cache  ▒ other CUDA  ░ before  ? unexplained  ∙ not traced", in as
// many lines as it needs; of a GPU with its bytes, without what it has none of, and with what the
// books have beyond NVML's figure.
func (p *palette) legend(g *gpu, width int) []string {
	var list []string
	b := painted{p: p}
	used := 0
	write := func(s style, fill rune, name string, bytes int64) {
		if g != nil {
			if bytes == 0 {
				return
			}
			name += " " + format.SignedBytes(bytes)
		}
		if used > 0 && used+4+format.Width(name) > width {
			list, used = append(list, b.String()), 0
			b.Reset()
		}
		if used > 0 {
			b.WriteString("  ")
			used += 2
		}
		b.rune(s, fill)
		b.end()
		b.WriteString(" " + format.Cut(name, max(width-2, 1)))
		used += 2 + format.Width(name)
	}
	one := g
	if g == nil {
		one = &gpu{}
	}
	for k := range barPlanes {
		write(planes[k].style, planes[k].fill, planes[k].short, one.planes[k])
	}
	write(dim, untracedFill, "not traced", int64(one.untraced))
	if one.beyond > 0 {
		write(dim, beyondFill, report.BeyondNVML, int64(one.beyond))
	}
	return append(list, b.String())
}
