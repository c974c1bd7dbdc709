// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"io"
	"slices"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/words"
)

// WriteDiff writes which lines of the user's own code hold more or less GPU memory after than
// before, from the result of profile.Diff. The names are those of the two files or moments.
func WriteDiff(w io.Writer, changes []report.Change, names [2]string, o report.Options, screen Screen) error {
	var before, after int64
	for i := range changes {
		before += changes[i].Before
		after += changes[i].After
	}
	p := newPage(screen)
	p.list(plain, 0, " ", "From "+untrusted.Clean(names[0]), "to "+untrusted.Clean(names[1]))
	p.line(plain, 0, "")
	p.text(bold, 0, fmt.Sprintf("GPU memory: %s, %s → %s", words.Difference(after-before), words.SignedBytes(before), words.SignedBytes(after)))
	p.line(plain, 0, "")
	changes = slices.DeleteFunc(slices.Clone(changes), func(c report.Change) bool { return c.Before == c.After })
	for _, c := range changes[:min(len(changes), o.Limit())] {
		p.headLine(plain, words.Pad(words.Difference(c.After-c.Before), -10), c.Frame)
		p.list(dim, min(12, p.width/6), ", ", words.SignedBytes(c.Before)+" → "+words.SignedBytes(c.After), c.Where)
	}
	if len(changes) > o.Limit() {
		p.text(dim, 0, words.Count(uint64(len(changes)-o.Limit()), "more line")+" (-T shows more)")
	}
	return p.writeTo(w)
}
