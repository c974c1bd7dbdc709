// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	group  = regexp.MustCompile("((?:`[^`]+`(?:, )?)+) \\(([a-z0-9/_.]+)\\)")
	quoted = regexp.MustCompile("`([^`]+)`")
)

// TestLimits compares the table of limits in docs/bounds.md with the constants that it names: each
// value must stand in its row.
func TestLimits(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "docs/bounds.md"), "## Limits")
	text, _, _ = strings.Cut(text, "## Shared tables")
	packages := map[string]map[string]constant.Value{}
	compared := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.Contains(cells[1], "---") {
			continue
		}
		for _, match := range group.FindAllStringSubmatch(cells[3], -1) {
			folder := match[2]
			if strings.HasSuffix(folder, ".h") {
				folder = filepath.Dir(folder)
			}
			if packages[folder] == nil {
				packages[folder] = constants(t, folder)
			}
			for _, name := range quoted.FindAllStringSubmatch(match[1], -1) {
				value, ok := packages[folder][name[1]]
				if !ok {
					t.Errorf("docs/bounds.md: %s has no constant %s (git grep %s finds where it is now)", folder, name[1], name[1])
					continue
				}
				compared++
				if texts := written(value); !slices.ContainsFunc(texts, func(text string) bool { return mentions(cells[2], text) }) {
					t.Errorf("docs/bounds.md: %s in %s is one of %q, but its row has %q", name[1], folder, texts, strings.TrimSpace(cells[2]))
				}
			}
		}
	}
	t.Logf("%d constants", compared)
}

var (
	namedTest = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	exactTest = regexp.MustCompile("^`(?:Test|Fuzz)[A-Z]\\w*(?:/\\w+)?`$")
)

// TestDocumentsNameTestsThatExist finds tests in the documents that were renamed or deleted. A name
// that is quoted alone is a whole one; others, as in "-run TestUsage", may be the begin of one.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	var all strings.Builder
	for _, name := range tracked(t, "*_test.go") {
		all.WriteString(read(t, name))
	}
	for _, page := range tracked(t, "*.md") {
		text := read(t, page)
		for _, at := range namedTest.FindAllStringIndex(text, -1) {
			declaration := "func " + text[at[0]:at[1]]
			if end := strings.IndexByte(text[at[1]:], '`'); at[0] > 0 && end >= 0 && exactTest.MatchString(text[at[0]-1:at[1]+end+1]) {
				declaration += "("
			}
			if !strings.Contains(all.String(), declaration) {
				t.Errorf("%s: there is no %s", page, declaration)
			}
		}
	}
}

// mentions reports whether a cell has a number as a whole: "16" is not in "16,384".
func mentions(cell, number string) bool {
	return regexp.MustCompile(`(^|[^0-9,.])` + regexp.QuoteMeta(number) + `($|[^0-9,a-zA-Z]|,[^0-9])`).MatchString(cell)
}

// written returns the ways to write a value: as bytes, a count or a duration.
func written(value constant.Value) []string {
	n, _ := constant.Int64Val(constant.ToInt(value))
	texts := []string{comma(n), fmt.Sprintf("%d bytes", n)}
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if shift := 10 * (i + 1); n>>shift<<shift == n && n>>shift > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", n>>shift, unit), fmt.Sprintf("%d %sB", n>>shift, unit))
		}
	}
	if n%1e6 == 0 && n >= 1e6 {
		texts = append(texts, fmt.Sprintf("%d ms", n/1e6), fmt.Sprintf("%g s", float64(n)/1e9))
	}
	return texts
}

// comma writes 16384 as "16,384".
func comma(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// constants evaluates the constants of a package that need no other package but time, and in C the
// macros that are numbers.
func constants(t *testing.T, folder string) map[string]constant.Value {
	t.Helper()
	list := map[string]constant.Value{}
	set := token.NewFileSet()
	var files []*ast.File
	names, _ := filepath.Glob(filepath.Join(root, folder, "*.go"))
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	config := types.Config{Importer: onlyTime{}, Error: func(error) {}} // what it cannot import it leaves out
	pkg, _ := config.Check(folder, set, files, nil)
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok && c.Val().Kind() == constant.Int {
			list[name] = c.Val()
		}
	}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			for name, value := range fieldValues(n) {
				if v, err := types.Eval(set, pkg, value.Pos(), types.ExprString(value)); err == nil && v.Value != nil {
					list[name] = constant.ToInt(v.Value)
				}
			}
			return true
		})
	}
	headers, _ := filepath.Glob(filepath.Join(root, folder, "*.h"))
	for _, name := range headers {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range slices.Concat(enumeration.FindAllStringSubmatch(string(text), -1), table.FindAllStringSubmatch(string(text), -1)) {
			list[match[1]] = constant.MakeFromLiteral(match[2], token.INT, 0)
		}
	}
	return list
}

// fieldValues finds limits that are no constants, by the name that docs/bounds.md has for them: of
// "o.MaxFiles = cmp.Or(o.MaxFiles, 1024)" Options.MaxFiles, of "Limits{Units: 1 << 18}"
// Limits.Units, of "var eventLimit = limit{2 << 20, 2}" eventLimit.
func fieldValues(n ast.Node) map[string]ast.Expr {
	list := map[string]ast.Expr{}
	switch x := n.(type) {
	case *ast.AssignStmt:
		field, ok := x.Lhs[0].(*ast.SelectorExpr)
		if call, isCall := x.Rhs[0].(*ast.CallExpr); ok && isCall && len(call.Args) == 2 && types.ExprString(call.Fun) == "cmp.Or" {
			list["Options."+field.Sel.Name] = call.Args[1]
		}
	case *ast.ValueSpec:
		for i, value := range x.Values {
			if literal, ok := value.(*ast.CompositeLit); ok && literal.Type != nil && types.ExprString(literal.Type) == "limit" {
				list[x.Names[i].Name] = literal.Elts[0]
			}
		}
	case *ast.CompositeLit:
		for _, e := range x.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok && x.Type != nil && strings.HasSuffix(types.ExprString(x.Type), "Limits") {
				list["Limits."+types.ExprString(pair.Key)] = pair.Value
			}
		}
	}
	return list
}

var (
	enumeration = regexp.MustCompile(`(?m)^\t(\w+) = (\d+),`)
	table       = regexp.MustCompile(`(?m)^MAP\((\w+), .*?(\d+)\);`)
)

// onlyTime is an importer that has package time with its units.
type onlyTime struct{}

func (onlyTime) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, errors.New("not imported")
	}
	pkg := types.NewPackage("time", "time")
	duration := types.NewNamed(types.NewTypeName(token.NoPos, pkg, "Duration", nil), types.Typ[types.Int64], nil)
	pkg.Scope().Insert(duration.Obj())
	for name, ns := range map[string]int64{"Millisecond": 1e6, "Second": 1e9, "Minute": 60e9} {
		pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, name, duration, constant.MakeInt64(ns)))
	}
	pkg.MarkComplete()
	return pkg, nil
}
