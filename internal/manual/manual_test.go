// SPDX-License-Identifier: Apache-2.0

package manual

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPagesFitTheTerminal writes each page without its code, whose lines stay whole, in three
// widths.
func TestPagesFitTheTerminal(t *testing.T) {
	for _, width := range []int{44, 80, 120} {
		for _, p := range Pages {
			d, err := p.Read()
			if err != nil {
				t.Fatal(err)
			}
			d.Blocks = withoutCode(d.Blocks)
			for line := range strings.Lines(write(t, d, width, false)) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("%s: a line of %d columns, at most %d fit: %s", p.Name, n, width, line)
				}
			}
		}
	}
}

func withoutCode(blocks []Block) (list []Block) {
	for _, b := range blocks {
		items := b.Items
		b.Items = nil
		for _, item := range items {
			b.Items = append(b.Items, withoutCode(item))
		}
		if b.Kind != Code {
			list = append(list, b)
		}
	}
	return list
}

const example = "# Title\n\nText with `two words` and a [link](planes.md#kinds).\n\n" +
	"| name | meaning |\n|---|---|\n| `a` | the first of them all |\n"

func TestPlainTextHasNoSequencesOfTheTerminal(t *testing.T) {
	want := "Title\n\n  Text with `two words` and a link.\n\n  name  meaning\n  `a`   the first of them all\n\nSee also: vramprof help planes\n"
	if got := write(t, parse([]byte(example), "docs/example.md"), 44, false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestStyledTextMarksCodeAndLinks(t *testing.T) {
	got := write(t, parse([]byte(example), "docs/example.md"), 44, true)
	for _, want := range []string{"\x1b[1mTitle\x1b[22m\n", "\x1b[1mtwo words\x1b[22m", "\x1b[4mlink\x1b[24m.", "  \x1b[1ma\x1b[22m     the first"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
}

func TestATableWithoutRoomIsStacked(t *testing.T) {
	wide := "# T\n\n| name | from | note |\n|---|---|---|\n| `a` | where it is from, at length | what else there is to know |\n"
	want := "T\n\n  `a`\n      from: where it is from, at\n      length\n      note: what else there is to\n      know\n"
	if got := write(t, parse([]byte(wide), "docs/example.md"), 34, false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNearestSuggestsOnlyWhatIsAlike(t *testing.T) {
	names := []string{"planes", "formats", "kubernetes"}
	for name, want := range map[string]string{"plane": "planes", "Formts": "formats", "kubernets": "kubernetes", "xyz": ""} {
		if got := Nearest(name, names); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func write(t *testing.T, d Document, width int, styled bool) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, d, width, styled); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
