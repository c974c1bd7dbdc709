// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const glossary = "docs/glossary.md"

// word is a row of the table of words to avoid.
type word struct {
	pattern *regexp.Regexp
	instead string
	except  *regexp.Regexp // nil: nothing
}

// TestGlossary finds words that the glossary forbids.
func TestGlossary(t *testing.T) {
	words := forbidden(t)
	for _, name := range tracked(t, ".") {
		text := read(t, name)
		if name == glossary || !isText(name, text) {
			continue
		}
		number := 0
		for line := range strings.Lines(text) {
			number++
			for _, w := range words {
				if match := w.pattern.FindString(line); match != "" && (w.except == nil || !w.except.MatchString(line)) {
					t.Errorf("%s:%d: %q (write: %s)", name, number, match, w.instead)
				}
			}
		}
	}
}

// forbidden reads rows such as "| `\bhooks?\b` | probe | |"; "\|" is "|" in the cell of a table.
func forbidden(t *testing.T) (words []word) {
	t.Helper()
	_, table, _ := strings.Cut(read(t, glossary), "## Words to avoid")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00"), "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		w := word{pattern: expression(t, cells[1]), instead: strings.TrimSpace(cells[2])}
		if strings.TrimSpace(cells[3]) != "" {
			w.except = expression(t, cells[3])
		}
		words = append(words, w)
	}
	if len(words) < 10 {
		t.Fatalf("%s forbids only %d words", glossary, len(words))
	}
	return words
}

func expression(t *testing.T, cell string) *regexp.Regexp {
	t.Helper()
	e, err := regexp.Compile(strings.ReplaceAll(strings.Trim(cell, " `"), "\x00", "|"))
	if err != nil {
		t.Fatalf("%s: %v", glossary, err)
	}
	return e
}

// isText reports whether people wrote a file: licenses, checksums, binary and generated files are
// left out.
func isText(name, text string) bool {
	switch base := path.Base(name); {
	case base == "LICENSE", strings.HasSuffix(base, ".sum"), strings.HasSuffix(base, ".mod"), strings.Contains(name, "/fuzz/"):
		return false
	}
	head, _, _ := strings.Cut(text, "\npackage ")
	return utf8.ValidString(text) && !strings.Contains(text, "\x00") && !strings.Contains(head, "Code generated")
}
