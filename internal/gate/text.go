// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
)

// mostLines is how many lines a report lists.
const mostLines = 20

// WriteText writes the verdict for people.
func (r *Result) WriteText(w io.Writer, columns int) error {
	var b strings.Builder
	line := func(indent int, text string) {
		b.WriteString(strings.Repeat(" ", indent) + terminal.Hanging(text, columns, indent+2) + "\n")
	}
	verdict := string(r.Verdict)
	if r.Verdict == Good && len(r.checks()) == 0 {
		verdict = "measured" // for a baseline alone
	}
	line(0, verdict+": "+untrusted.Clean(r.Command))
	for _, why := range r.Why {
		head := "cannot tell: "
		if r.Verdict == Bad { // what was measured until then is too much already
			head = "incomplete: "
		}
		line(2, head+untrusted.Clean(why))
	}
	if m := r.Now; m != nil {
		text := fmt.Sprintf("peak: %s allocated, %s used, %s", format.Bytes(m.Peak), format.Bytes(m.Usage), format.Count(uint64(m.Processes), "process"))
		switch {
		case m.Runs > 1 && m.Noise == 0:
			text += fmt.Sprintf(", equal in %d runs", m.Runs)
		case m.Runs > 1:
			text += fmt.Sprintf(", median of %d runs that differ by %s", m.Runs, format.Bytes(m.Noise))
		}
		line(2, text)
	}
	for _, c := range r.checks() {
		answer := "passed"
		switch {
		case c.failed:
			answer = "failed"
		case c.id == "budget" && r.Unsure:
			answer = "cannot tell"
		}
		line(2, fmt.Sprintf("%s %s: %s", c.id, answer, c.text))
	}
	if r.Before != nil && r.Now != nil {
		r.writeLines(line)
	}
	for _, d := range r.doubts() {
		line(2, "note: "+d)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLines lists the lines that grew or, where the peak is too high without one, those with most
// growth.
func (r *Result) writeLines(line func(int, string)) {
	n, head := r.Grew, "lines that grew:"
	if n == 0 && (r.OverPeak || r.Over) {
		head = "no line grew by itself; most growth:"
		for n < len(r.Lines) && n < 5 && r.Lines[n].growth() > 0 {
			n++
		}
	}
	if n == 0 {
		text := "no line grew"
		if r.Limit > 0 {
			text += " by more than is allowed"
		}
		line(2, text)
		return
	}
	line(2, head)
	for i := range r.Lines[:min(n, mostLines)] {
		c := &r.Lines[i]
		line(4, c.place()+": "+c.growthText())
		if c.Text != "" {
			line(6, c.Text)
		}
	}
	if n > mostLines {
		line(4, format.Count(uint64(n-mostLines), "more line"))
	}
}
