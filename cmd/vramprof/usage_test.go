// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
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

func helpOfCommands(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, command := range newApp(&program{}, nil, nil).Commands {
		var out, errors bytes.Buffer
		if code := run([]string{"vramprof", command.Name, "--help"}, &out, &errors); code != exitDone {
			t.Fatalf("help of %s: %s", command.Name, errors.String())
		}
		fmt.Fprintf(&b, "### %s\n\n```\n%s\n```\n\n", command.Name, strings.TrimSpace(out.String()))
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
