// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/xml"
	"io"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// mostCases is how many lines of code are test cases.
const mostCases = 200

type junitSuites struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Errors   int        `xml:"errors,attr"`
	Suite    junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	File    string       `xml:"file,attr,omitempty"`
	Line    int          `xml:"line,attr,omitempty"`
	Failure *junitFailed `xml:"failure"`
	Error   *junitFailed `xml:"error"`
}

type junitFailed struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes a test case for each question, and for each line of code that has memory now or
// in the baseline. Names of cases have no line number, so that a line that moves stays the same
// case.
func (r *Result) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: untrusted.Clean(r.Command)}
	for _, c := range r.checks() {
		x := junitCase{Class: "vramprof.ci", Name: c.id}
		if c.failed {
			x.Failure = &junitFailed{c.text, "budget", r.linesText()}
			if c.id != "budget" {
				x.Failure.Type = "growth"
			}
		}
		s.Cases = append(s.Cases, x)
	}
	for i := range r.Lines[:min(len(r.Lines), mostCases)] {
		c := &r.Lines[i]
		x := junitCase{Class: "vramprof.ci.lines", Name: c.name(), File: c.File, Line: c.Line.Line}
		if c.Grew && (r.EachLine || r.OverPeak) {
			x.Failure = &junitFailed{c.growthText(), "growth", c.place() + "\n" + c.Text}
		}
		s.Cases = append(s.Cases, x)
	}
	why := r.Why
	if r.Unsure {
		why = append(why[:len(why):len(why)], r.budgetText())
	}
	if len(why) > 0 {
		s.Cases = append(s.Cases, junitCase{Class: "vramprof.ci", Name: "measurement", Error: &junitFailed{Message: untrusted.Clean(strings.Join(why, "; ")), Type: "unknown"}})
	}
	for i := range s.Cases {
		s.Tests++
		if s.Cases[i].Failure != nil {
			s.Failures++
		}
		if s.Cases[i].Error != nil {
			s.Errors++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", " ")
	if err := e.Encode(junitSuites{Name: "vramprof ci", Tests: s.Tests, Failures: s.Failures, Errors: s.Errors, Suite: s}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// name returns what stays the same when a line moves: "train.py forward: x = torch.empty(n)".
func (l *Line) name() string {
	at := *l
	at.Line = 0
	if l.Text == "" {
		return l.place()
	}
	return at.place() + ": " + l.Text
}

// linesText lists the lines that grew.
func (r *Result) linesText() string {
	var b strings.Builder
	for i := range r.Lines[:min(r.Grew, mostLines)] {
		c := &r.Lines[i]
		b.WriteString(c.place() + ": " + c.growthText() + "\n")
	}
	return b.String()
}
