// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"fmt"
	"go/ast"
	"iter"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The limits. Each has its advice in TestLimits.
const (
	maxMethods       = 45 // of a type
	maxFields        = 25 // of a struct; an embedded type is one
	maxFiles         = 30 // of a folder: Go files, without tests and generated ones
	arrowsPerUp      = 10 // arrows of a package, or fewer, for each one that runs up: see arrows
	maxCommandFiles  = 25 // of cmd/vramprof
	maxCommandLines  = 3_000
	maxLines         = 84_000 // of all code that is written by hand and tests nothing: see codeLines
	commandLinesUnit = 100    // exceptions give lines in full hundreds,
	linesUnit        = 1_000  // and those of all code in full thousands, rounded up
)

var topFolders = strings.Fields("bpf cmd docs internal packaging report scripts symbolize testdata tracer")

// exceptions has the figures above a limit, as they are today. They may only shrink: TestLimits
// fails if one differs, and shows what its line should be. A figure within its limit has no line.
var exceptions = map[string]int{
	"files in cmd/vramprof":  28,
	"lines in cmd/vramprof":  3600,
	"files in tracer/ledger": 65,
	"lines of code":          154000,
}

// formats lists structs with many fields that mirror a format from outside, and so have the fields
// of that format. A struct most of whose fields have a tag for JSON or protobuf is one without
// being listed.
var formats = map[string]string{
	"tracer/holders.layout": "where CPython's objects have their fields",
}

func TestLimits(t *testing.T) {
	left, formatsLeft := maps.Clone(exceptions), maps.Clone(formats)
	check := func(what string, figure, limit int, advice string) {
		t.Helper()
		was, excepted := left[what]
		delete(left, what)
		switch {
		case figure > limit && !excepted:
			t.Errorf("%s: %d, more than %d. %s", what, figure, limit, advice)
		case figure <= limit && excepted:
			t.Errorf("%s: %d, which is within the limit of %d: delete its line from exceptions", what, figure, limit)
		case excepted && figure > was:
			t.Errorf("%s: %d, more than the %d in exceptions, which may only shrink. %s", what, figure, was, advice)
		case excepted && figure < was:
			t.Errorf("%s: %d, less than in exceptions. Lower its line there:\n\t%q: %d,", what, figure, what, figure)
		}
	}
	tr := parseTree(t)
	for _, p := range tr.packages {
		for name, n := range inOrder(p.methods()) {
			check("methods of "+name, n, maxMethods, "Give a part of its state, with the methods for that part, a type of its own.")
		}
		for name, n := range inOrder(p.fields()) {
			if delete(formatsLeft, name); formats[name] != "" {
				continue
			}
			check("fields of "+name, n, maxFields, "Move fields that are used together into a type of their own. If the struct mirrors a format from outside, list it in formats.")
		}
		files := maxFiles
		if p.path == "cmd/vramprof" {
			files = maxCommandFiles
			check("lines in "+p.path, roundUp(p.goLines(), commandLinesUnit), maxCommandLines, "Move what is no flag, wiring or exit code to the package whose job it is.")
		}
		check("files in "+p.path, len(p.files), files, "Move files that do one job into a package of their own.")
		g := tr.arrows(p)
		order := g.order()
		check("arrows up in "+p.path, g.up(order), roundUp(g.count, arrowsPerUp)/arrowsPerUp, fmt.Sprintf(
			"The package has %d arrows between files. Move what closes a cycle to the file that it belongs to: %s", g.count, g.describe(p, order)))
	}
	for _, name := range folders(t) {
		check("top folder "+name, 1, 0, "Put it below one of "+strings.Join(topFolders, ", ")+".")
	}
	check("lines of code", roundUp(tr.codeLines(t), linesUnit), maxLines, "Delete what is no longer needed, or let a library do it.")
	for _, what := range slices.Sorted(maps.Keys(left)) {
		t.Errorf("%s: no longer there. Delete the line from exceptions, or rename it after a move", what)
	}
	for _, name := range slices.Sorted(maps.Keys(formatsLeft)) {
		t.Errorf("%s is no longer there: delete its line from formats, or rename it after a move", name)
	}
}

// TestOnlyTheCommandKnowsItsFlags finds uses of cli.Context outside cmd: other packages take what
// they need as parameters.
func TestOnlyTheCommandKnowsItsFlags(t *testing.T) {
	for _, p := range parseTree(t).packages {
		if within(p.path, "cmd") {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f.parsed, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Context" {
					if from, ok := s.X.(*ast.Ident); ok && from.Name == "cli" {
						t.Errorf("%s/%s uses cli.Context: pass the values of the flags instead", p.path, f.name)
					}
				}
				return true
			})
		}
	}
}

// methods returns how many methods each type has.
func (p *sourcePackage) methods() map[string]int {
	counts := map[string]int{}
	for _, f := range p.files {
		for _, d := range f.parsed.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv != nil {
				counts[p.path+"."+receiver(d.Recv.List[0].Type)]++
			}
		}
	}
	return counts
}

// receiver returns the name of a receiver's type: of "T", "*T", "T[K]" or "*T[K, V]".
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// fields returns how many fields each struct has, except those that mirror a format by their tags.
func (p *sourcePackage) fields() map[string]int {
	counts := map[string]int{}
	for _, f := range p.files {
		ast.Inspect(f.parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				if n, tagged := countFields(s); tagged <= n/2 {
					counts[p.path+"."+spec.Name.Name] = n
				}
			}
			return true
		})
	}
	return counts
}

func countFields(s *ast.StructType) (n, tagged int) {
	for _, field := range s.Fields.List {
		names := max(len(field.Names), 1)
		n += names
		if field.Tag != nil && (strings.Contains(field.Tag.Value, "json:") || strings.Contains(field.Tag.Value, "protobuf:")) {
			tagged += names
		}
	}
	return n, tagged
}

// codeLines returns how many lines of code are written by hand and test nothing: all lines of Go,
// C, assembly, shell and JavaScript, with comments and empty ones. Python is left out: it only
// tests, measures and draws. So are files that are generated, those below testdata, _test.go,
// scripts whose names begin with "test", and packages whose job in docs/packages.md begins with
// "tests:".
func (tr tree) codeLines(t *testing.T) int {
	tests := map[string]bool{}
	for _, r := range table(t) {
		tests[r.pkg] = strings.HasPrefix(r.job, "tests:")
	}
	sum := otherLines(t)
	for _, p := range tr.packages {
		if !tests[p.path] {
			sum += p.goLines()
		}
	}
	return sum
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// describe lists the arrows that run up: "a.go→b.go".
func (g *graph) describe(p *sourcePackage, order []int) string {
	var list []string
	for i, below := range order {
		for _, above := range order[:i] {
			if g.to[below][above] {
				list = append(list, p.files[below].name+"→"+p.files[above].name)
			}
		}
	}
	slices.Sort(list)
	const most = 12
	if more := len(list) - most; more > 0 {
		list = append(list[:most], "and "+strconv.Itoa(more)+" more")
	}
	return strings.Join(list, ", ")
}

// inOrder yields the pairs of a map in the order of their keys.
func inOrder(m map[string]int) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}

// folders lists the folders at the top of the repository that should not be there.
func folders(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && path.Base(e.Name())[0] != '.' && !slices.Contains(topFolders, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names
}
