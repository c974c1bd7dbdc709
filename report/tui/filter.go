// SPDX-License-Identifier: Apache-2.0

package tui

import "regexp"

// maxFilter is the longest filter, in characters.
const maxFilter = 200

// filter chooses rows by a regular expression, or by a text where it is none. Upper and lower case
// are the same.
type filter struct {
	text string
	re   *regexp.Regexp
}

func newFilter(text string) filter {
	f := filter{text: text}
	if text == "" {
		return f
	}
	re, err := regexp.Compile("(?i)" + text)
	if err != nil {
		re = regexp.MustCompile("(?i)" + regexp.QuoteMeta(text))
	}
	f.re = re
	return f
}

// passes reports whether one of the texts of a row matches.
func (f *filter) passes(texts ...string) bool {
	if f.re == nil {
		return true
	}
	for _, text := range texts {
		if f.re.MatchString(text) {
			return true
		}
	}
	return false
}
