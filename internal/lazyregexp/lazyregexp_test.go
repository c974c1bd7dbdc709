// SPDX-License-Identifier: Apache-2.0

package lazyregexp

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Evaluates "a" + "b"; ok is false if it is no constant text.
func textOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.StringVal(constant.MakeFromLiteral(e.Value, e.Kind, 0)), e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, okX := textOf(e.X)
		y, okY := textOf(e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	}
	return "", false
}

// isNew reports whether a function is New, or the name re that package purpose has for it.
func isNew(f ast.Expr) bool {
	switch f := f.(type) {
	case *ast.SelectorExpr:
		of, ok := f.X.(*ast.Ident)
		return ok && of.Name == "lazyregexp" && f.Sel.Name == "New"
	case *ast.Ident:
		return f.Name == "re"
	}
	return false
}

func TestEachExpressionCompiles(t *testing.T) {
	found := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			if err == nil && d.IsDir() && d.Name() == ".cache" {
				return filepath.SkipDir
			}
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isNew(call.Fun) || len(call.Args) != 1 {
				return true
			}
			text, ok := textOf(call.Args[0])
			if !ok {
				t.Errorf("%v: not a constant text", fset.Position(call.Pos()))
				return true
			}
			found++
			if _, err := regexp.Compile(text); err != nil {
				t.Errorf("%v: %v", fset.Position(call.Pos()), err)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found < 100 {
		t.Errorf("found %d expressions, want 100 or more", found)
	}
}

func TestItMatchesAsRegexp(t *testing.T) {
	r := New(`^a(b+)`)
	if r.re != nil {
		t.Error("compiled before its first use")
	}
	if got := r.FindStringSubmatch("abbc"); len(got) != 2 || got[1] != "bb" || !r.MatchString("ab") || r.MatchString("ba") {
		t.Errorf("got %q", got)
	}
}
