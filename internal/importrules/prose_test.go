// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"testing"
)

// proseReaders are the functions that take a text apart or find something in it.
var proseReaders = map[string]bool{
	"Contains": true, "Count": true, "Cut": true, "CutPrefix": true, "CutSuffix": true, "EqualFold": true, "HasPrefix": true, "HasSuffix": true,
	"Index": true, "LastIndex": true, "Split": true, "SplitN": true, "TrimPrefix": true, "TrimSuffix": true, // strings, bytes
	"MustCompile": true, "Compile": true, // regexp
}

// twoWords is what a text for people has, and a name, a path, a piece of a format or Python's <name
// of a thing> has not.
var twoWords = regexp.MustCompile(`^[^<]*\pL{2}[,:;]? \pL{2}`)

// TestNobodyReadsSentences: what a program must know travels as a code or a value, and only package
// report makes a sentence of it. The rule sees literals, and constants of the same package where a
// text is taken apart. A named constant that is compared as a whole is a code, whatever its text.
func TestNobodyReadsSentences(t *testing.T) {
	tr := parseTree(t)
	for _, p := range tr.packages {
		if !within(p.path, "report") && !within(p.path, "internal") && !within(p.path, "tracer") {
			continue
		}
		for _, read := range p.sentencesRead() {
			t.Errorf("%s reads a sentence: let a code or a value travel beside it, and compare that", tr.fset.Position(read.Pos()))
		}
	}
}

func TestReadsOfSentencesAreFound(t *testing.T) {
	for text, want := range map[string]int{
		`const begin = "no " + words; const words = "holders of "; func f(s string) bool { return strings.HasPrefix(s, begin) }`: 1,
		`func f(s string) bool { return s == "it was freed" || "it was freed" != s }`:                                            2,
		`func f(s string) { switch s { case "a", "it ended": } }`:                                                                1,
		`var r = regexp.MustCompile("kept by (.*)")`:                                                                             1,
		`func f(s string) bool { return strings.Contains(s, "torch.autograd") || s == "cuda:0" || s == "" }`:                     0,
		`func f(s string) string { return strings.TrimSuffix(s, " (deleted)") + "it was freed" }`:                                0,
	} {
		if got := len(parsePackage(t, "package p\n"+text).sentencesRead()); got != want {
			t.Errorf("%d instead of %d in %s", got, want, text)
		}
	}
}

// sentencesRead returns the expressions that compare with a sentence or look for one.
func (p *sourcePackage) sentencesRead() (found []ast.Expr) {
	constants := p.texts()
	check := func(of func(ast.Expr) string, list ...ast.Expr) {
		for _, e := range list {
			if twoWords.MatchString(of(e)) {
				found = append(found, e)
			}
		}
	}
	for _, f := range p.files {
		ast.Inspect(f.parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok && proseReaders[s.Sel.Name] && isTextPackage(s.X) {
					check(constants.of, n.Args...)
				}
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					check(literal, n.X, n.Y)
				}
			case *ast.SwitchStmt:
				if n.Tag != nil {
					for _, c := range n.Body.List {
						check(literal, c.(*ast.CaseClause).List...)
					}
				}
			}
			return true
		})
	}
	return found
}

func isTextPackage(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && (name.Name == "strings" || name.Name == "bytes" || name.Name == "regexp")
}

// texts are the expressions of a package's constants and variables by name.
type texts map[string]ast.Expr

func (p *sourcePackage) texts() texts {
	list := texts{}
	for _, f := range p.files {
		for _, d := range f.parsed.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, s := range g.Specs {
				if v, ok := s.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
					for i, name := range v.Names {
						list[name.Name] = v.Values[i]
					}
				}
			}
		}
	}
	return list
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if text, err := strconv.Unquote(l.Value); err == nil {
			return text
		}
	}
	return ""
}

// of returns the text of a literal, a constant or a sum of them; "" of all else.
func (t texts) of(e ast.Expr) string { return t.within(e, 8) }

func (t texts) within(e ast.Expr, depth int) string {
	if depth == 0 {
		return ""
	}
	switch e := e.(type) {
	case *ast.BasicLit:
		return literal(e)
	case *ast.Ident:
		if value, known := t[e.Name]; known {
			return t.within(value, depth-1)
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return t.within(e.X, depth-1) + t.within(e.Y, depth-1)
		}
	case *ast.ParenExpr:
		return t.within(e.X, depth-1)
	}
	return ""
}

func parsePackage(t *testing.T, source string) *sourcePackage {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return &sourcePackage{path: "p", files: []*sourceFile{{"p.go", 1, parsed}}}
}
