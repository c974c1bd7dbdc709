// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxSentence is how many words a sentence may have. A reader forgets the begin of longer ones.
const maxSentence = 35

// notProse are folders whose texts are records of measurements, of others, or generated.
var notProse = regexp.MustCompile(`^scripts/bench/results/|^testdata/|/testdata/|\.pb\.go$`)

var (
	codeSpan    = regexp.MustCompile("`[^`]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	listItem    = regexp.MustCompile(`^\s*([-*]|\d+\.) `)
	sentenceEnd = regexp.MustCompile(`[.!?:]["*)_]*(\s+|$)`)
	hasLetter   = regexp.MustCompile(`[\pL\pN]`)
)

// longSentences returns the sentences of a paragraph that are too long. A name in backquotes is one
// word; a colon ends a sentence, since what follows it is one or a list.
func longSentences(paragraph string) (list []string) {
	text := linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(paragraph, "CODE"), "]")
	for _, sentence := range sentenceEnd.Split(text, -1) {
		words := slices.DeleteFunc(strings.Fields(sentence), func(word string) bool { return !hasLetter.MatchString(word) })
		if len(words) > maxSentence {
			list = append(list, sentence)
		}
	}
	return list
}

// paragraphs returns the paragraphs and items of lists of a page, without headings, tables and
// code.
func paragraphs(page string) (list []string) {
	var now []string
	end := func() {
		if len(now) > 0 {
			list = append(list, strings.Join(now, " "))
		}
		now = nil
	}
	for line := range strings.Lines(fence.ReplaceAllString(page, "")) {
		text := strings.TrimSpace(line)
		item := listItem.MatchString(line)
		if text == "" || item || strings.ContainsRune("|#<", rune(text[0])) {
			end()
		}
		switch {
		case text == "" || strings.ContainsRune("|#<", rune(text[0])):
		case len(now) == 0 && !item && strings.HasPrefix(line, "    "): // code
		default:
			now = append(now, strings.TrimSpace(listItem.ReplaceAllString(line, "")))
		}
	}
	end()
	return list
}

func TestSentencesOfPagesAreShort(t *testing.T) {
	for _, name := range tracked(t, "*.md") {
		if notProse.MatchString(name) {
			continue
		}
		for _, p := range paragraphs(read(t, name)) {
			for _, s := range longSentences(p) {
				t.Errorf("%s: a sentence has more than %d words: %s", name, maxSentence, s)
			}
		}
	}
}

// TestSentencesOfMessagesAreShortAndPlain reads the strings of the program: help, errors, notes of
// reports.
func TestSentencesOfMessagesAreShortAndPlain(t *testing.T) {
	for _, name := range tracked(t, "*.go") {
		if notProse.MatchString(name) || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "scripts/") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, read(t, name), parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, isText := literal(n)
			for _, s := range longSentences(text) {
				t.Errorf("%v: a sentence has more than %d words: %s", set.Position(n.Pos()), maxSentence, s)
			}
			if m := neverFits.FindString(text); m != "" {
				t.Errorf("%v: write something plainer than %q: %s", set.Position(n.Pos()), m, text)
			}
			return !isText
		})
	}
}

// literal returns the text of a string, or of several that are added.
func literal(n ast.Node) (string, bool) {
	switch x := n.(type) {
	case *ast.BasicLit:
		if x.Kind == token.STRING {
			text, err := strconv.Unquote(x.Value)
			return text, err == nil
		}
	case *ast.BinaryExpr:
		a, isA := literal(x.X)
		b, isB := literal(x.Y)
		return a + b, isA && isB
	}
	return "", false
}

// neverFits matches words that make a sentence hard to read. The glossary lists what to write in
// place of other words.
var neverFits = regexp.MustCompile(`\b[Aa]s of\b|\b[Ll]ikewise\b|\b[Bb]eside\b|\bof its own\b|(?:^|[.!?] )Of [a-z0-9]`)

func TestWordsThatNeverFit(t *testing.T) {
	for text, want := range map[string]bool{"peak as of 10s": true, "It grows. Of those, two leak.": true, "Of 8 runs one failed": true, "besides, 12 of 13": false, "Of course.": true} {
		if neverFits.MatchString(text) != want {
			t.Errorf("%q: fits not: %v", text, !want)
		}
	}
	for _, name := range tracked(t, "*.md") {
		if notProse.MatchString(name) {
			continue
		}
		for _, p := range paragraphs(read(t, name)) {
			if m := neverFits.FindString(codeSpan.ReplaceAllString(p, "CODE")); m != "" {
				t.Errorf("%s: write something plainer than %q: %s", name, m, p)
			}
		}
	}
}

func TestLongSentencesAreFound(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for text, want := range map[string]int{
		words(36):                          1,
		words(35) + ". " + words(35) + ".": 0,
		words(20) + ": " + words(20):       0,
		words(20) + "; " + words(20):       1,
		words(34) + " `a b c` – [d](e f)":  1,
		words(34) + " `a b c` – .":         0,
	} {
		if got := len(longSentences(text)); got != want {
			t.Errorf("%q: %d long sentences, want %d", text, got, want)
		}
	}
	page := "# " + words(40) + "\n\n" + words(20) + "\n" + words(20) + "\n\n    " + words(40) + "\n\n```\n" + words(40) + "\n```\n| " + words(40) + " |\n- " + words(20) + "\n- " + words(20) + "\n  " + words(20) + "\n"
	long := 0
	for _, p := range paragraphs(page) {
		long += len(longSentences(p))
	}
	if long != 2 { // the paragraph, and the second item
		t.Errorf("the page has %d long sentences, want 2", long)
	}
}
