// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/report"
)

// notes numbers footnotes in the order of their first reference.
type notes struct {
	doubts []report.Doubt
	texts  []string
}

// mark returns the signs of all doubts about a figure: "¹ ²".
func (n *notes) mark(at report.Figure) string {
	var signs []string
	for _, d := range n.doubts {
		if d.At == at {
			signs = append(signs, superscript(n.number(d.Text)))
		}
	}
	return strings.Join(signs, " ")
}

func (n *notes) number(text string) int {
	i := slices.Index(n.texts, text)
	if i < 0 {
		n.texts = append(n.texts, text)
		i = len(n.texts) - 1
	}
	return i + 1
}

func superscript(n int) string {
	digits := []rune("⁰¹²³⁴⁵⁶⁷⁸⁹")
	var b strings.Builder
	for _, d := range fmt.Sprint(n) {
		b.WriteRune(digits[d-'0'])
	}
	return b.String()
}

func footnotes(p *page, n *notes) {
	referenced := len(n.texts)
	for _, d := range n.doubts { // also those whose figure this report does not have
		n.number(d.Text)
	}
	if len(n.texts) > 0 {
		p.line(plain, 0, "")
	}
	for i, text := range n.texts {
		sign := "! "
		if i < referenced {
			sign = superscript(i+1) + " "
		}
		p.paragraph(sign, text)
	}
}
