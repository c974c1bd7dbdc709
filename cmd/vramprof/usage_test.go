// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const usageDocument = "../../docs/usage.md"

// TestUsage compares docs/usage.md with the help of each command and the comments of the exit
// codes; -update writes it.
func TestUsage(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	old, err := os.ReadFile(usageDocument)
	if err != nil {
		t.Fatal(err)
	}
	text := replaceSection(t, string(old), "commands", helpOfCommands(t))
	text = replaceSection(t, text, "exit codes", exitCodes(t))
	if text == string(old) {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date: go test ./cmd/vramprof -run TestUsage -update writes it", usageDocument)
	}
	if err := os.WriteFile(usageDocument, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// replaceSection replaces what stands between "<!-- NAME: … -->" and the next "<!-- end -->".
func replaceSection(t *testing.T, text, name, content string) string {
	t.Helper()
	before, rest, ok := strings.Cut(text, "<!-- "+name+":")
	head, rest, ok2 := strings.Cut(rest, "-->\n")
	_, after, ok3 := strings.Cut(rest, "<!-- end -->")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("%s has no section %q", usageDocument, name)
	}
	return before + "<!-- " + name + ":" + head + "-->\n" + content + "<!-- end -->" + after
}

var (
	optionStart = regexp.MustCompile(`^ {2}(?:-\w, | {4})--([\w.-]+)`)
	optionName  = regexp.MustCompile(`--?[\w.-]+`)
)

// helpText is the help of a command, by option.
type helpText struct {
	name, head string
	options    []string
}

func helpOf(t *testing.T, name string) helpText {
	t.Helper()
	var out, errors bytes.Buffer
	if code := run([]string{"vramprof", name, "--help"}, &out, &errors); code != exitDone {
		t.Fatalf("help of %s: %s", name, errors.String())
	}
	h := helpText{name: name}
	for line := range strings.Lines(strings.TrimSpace(out.String()) + "\n") {
		switch {
		case optionStart.MatchString(line):
			h.options = append(h.options, line)
		case len(h.options) > 0:
			h.options[len(h.options)-1] += line
		default:
			h.head += line
		}
	}
	return h
}

// leastShared is in how many commands an option of several lines is described once for all.
const leastShared = 3

// helpOfCommands returns the help of each command, and before it the options that several have.
func helpOfCommands(t *testing.T) string {
	t.Helper()
	traces := map[string]bool{} // the options of tracing
	for _, flag := range traceFlags() {
		traces[flag.Names()[0]] = true
	}
	var all []helpText
	var tracing, several []string
	of := map[string]int{}
	for _, command := range newApp(&program{}, nil, nil).Commands {
		if command.Name == "help" { // it lists what this document and docs/README.md have
			continue
		}
		h := helpOf(t, command.Name)
		for _, text := range h.options {
			if name := optionStart.FindStringSubmatch(text)[1]; h.name == "record" && traces[name] {
				tracing = append(tracing, text)
			} else if of[text]++; of[text] == leastShared && strings.Count(text, "\n") > 1 && !slices.Contains(tracing, text) {
				several = append(several, text)
			}
		}
		all = append(all, h)
	}
	var b strings.Builder
	b.WriteString("### Options of tracing\n\n```\n" + strings.Join(tracing, "") + "```\n\n")
	b.WriteString("### Options of several commands\n\n```\n" + strings.Join(several, "") + "```\n\n")
	for _, h := range all {
		var own, also []string
		trace := 0
		for _, text := range h.options {
			name := optionName.FindString(text)
			switch {
			case name == "-h":
			case slices.Contains(tracing, text):
				trace++
				also = append(also, "`"+name+"`")
			case slices.Contains(several, text):
				also = append(also, "`"+name+"`")
			default:
				own = append(own, text)
			}
		}
		if trace >= len(tracing)-1 { // all, or all but one that has another meaning here
			also = slices.DeleteFunc(also, func(name string) bool {
				return slices.ContainsFunc(tracing, func(text string) bool { return "`"+optionName.FindString(text)+"`" == name })
			})
			also = append([]string{"the [options of tracing](#options-of-tracing)"}, also...)
		}
		fmt.Fprintf(&b, "### %s\n\n```\n%s\n```\n\n", h.name, strings.TrimSpace(h.head+strings.Join(own, "")))
		if len(also) > 0 {
			fmt.Fprintf(&b, "Also: %s.\n\n", strings.Join(also, ", "))
		}
	}
	return b.String()
}

// exitCodes makes a table of the constants exit… in main.go and their comments.
func exitCodes(t *testing.T) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "main.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| exit code | means |\n|---|---|\n")
	ast.Inspect(file, func(n ast.Node) bool {
		if x, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(x.Names[0].Name, "exit") && len(x.Values) == 1 && x.Comment != nil {
			fmt.Fprintf(&b, "| %s | %s |\n", x.Values[0].(*ast.BasicLit).Value, strings.TrimSpace(x.Comment.Text()))
		}
		return true
	})
	return b.String()
}

// TestOptionsNameTheirDefaults: "forget processes TIME after they ended (default: 1h)".
func TestOptionsNameTheirDefaults(t *testing.T) {
	named := 0
	for _, command := range newApp(&program{}, nil, nil).Commands {
		for _, f := range command.Flags {
			if value := defaultOf(f); value != "" {
				named++
				if _, long, text := flagText(f); !strings.Contains(text, "(default: ") {
					t.Errorf("%s %s does not name its default %q: %s", command.Name, long, value, text)
				}
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d options have a default", named)
	}
}

// TestEveryCommandNamesWhatItAwaits, but those that talk to the user or a program by themselves.
func TestEveryCommandNamesWhatItAwaits(t *testing.T) {
	itself := []string{"top", "serve", "mcp", "version", "help"}
	for _, command := range newApp(&program{}, nil, nil).Commands {
		if got, want := awaits[command.Name] != "", !slices.Contains(itself, command.Name); got != want {
			t.Errorf("%s: in awaits: %v, want %v", command.Name, got, want)
		}
	}
}
