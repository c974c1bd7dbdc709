// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/report/format"
)

// WriteDiff writes which lines of the user's own code, and which holders, have more or less GPU
// memory after than before, from the result of profile.Diff. The names are those of the two files
// or moments.
func WriteDiff(w io.Writer, d compare.Difference, names [2]string, o report.Options, screen Screen) error {
	changes := d.Lines
	var before, after int64
	for i := range changes {
		before += changes[i].Before
		after += changes[i].After
	}
	p := newPage(screen)
	p.list(plain, 0, " ", "From "+untrusted.Clean(names[0]), "to "+untrusted.Clean(names[1]))
	p.line(plain, 0, "")
	p.text(bold, 0, fmt.Sprintf("GPU memory: %s, %s → %s", format.Difference(after-before), format.SignedBytes(before), format.SignedBytes(after)))
	p.line(plain, 0, "")
	changes = slices.DeleteFunc(slices.Clone(changes), func(c compare.Change) bool { return c.Before == c.After })
	for _, c := range changes[:min(len(changes), o.Limit())] {
		p.headLine(plain, format.Pad(format.Difference(c.After-c.Before), -10), c.Frame)
		p.list(dim, min(12, p.width/6), ", ", format.SignedBytes(c.Before)+" → "+format.SignedBytes(c.After), c.Where, callsText(c.Calls))
	}
	if len(changes) > o.Limit() {
		p.text(dim, 0, format.Count(uint64(len(changes)-o.Limit()), "more line")+" (-T shows more)")
	}
	holderChanges(p, &d, names, o)
	return p.writeTo(w)
}

// holderChanges writes which holders keep more or less.
func holderChanges(p *page, d *compare.Difference, names [2]string, o report.Options) {
	if !d.Known[0] && !d.Known[1] {
		return
	}
	p.line(plain, 0, "")
	for i, known := range d.Known {
		if !known {
			p.paragraph("", "Holders are not compared: "+untrusted.Clean(names[i])+" has none")
			return
		}
	}
	if len(d.Holders) == 0 {
		p.text(bold, 0, "All holders keep the same")
		return
	}
	p.text(bold, 0, "Who keeps more or less, each at the latest walk")
	p.line(plain, 0, "")
	indent := min(12, p.width/6)
	for _, c := range d.Holders[:min(len(d.Holders), o.Limit())] {
		figure := format.Pad(format.Difference(c.After-c.Before), -10) + "  "
		for _, piece := range pieces(c.Holder, p.width-format.Width(figure)) {
			p.line(plain, 0, figure+strings.TrimLeft(piece, " "))
			figure = format.Pad("", 12)
		}
		p.list(dim, indent, ", ", format.SignedBytes(c.Before)+" → "+format.SignedBytes(c.After), c.Where)
	}
	if more := len(d.Holders) - o.Limit(); more > 0 {
		p.text(dim, 0, format.Count(uint64(more), "more holder")+" (-T shows more)")
	}
}
