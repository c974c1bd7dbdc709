// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"testing"
)

// An arrow leads from a file to another one of its package that declares what the first one uses: a
// type, function, variable or constant of the package, or a method of one of its types. However
// much a file uses of another, it is one arrow.
//
// A package has no order of files of its own. order looks for the one in which the fewest arrows
// run up, so what still does is what no order can help: cycles between files.
//
// go/types resolves names in a package alone, without what it imports. So it misses methods of
// values whose types come through another package: of an element that slices.Backward yields, say.
// If such a method is not exported, and nothing else in the package has its name, its name tells
// the file. Names that files for different systems declare are no arrows, except to the first of
// these files.
func (tr tree) arrows(p *sourcePackage) graph {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImporter{}, FakeImportC: true, Error: func(error) {}}
	var files []*ast.File
	numbers := map[string]int{}
	for i, f := range p.files {
		files = append(files, f.parsed)
		numbers[f.name] = i
	}
	pkg, _ := config.Check(p.path, tr.fset, files, info) // the errors are those of imports
	number := func(at token.Pos) int { return numbers[path.Base(tr.fset.File(at).Name())] }
	unique := uniqueMethods(files)
	g := newGraph(len(files))
	for i, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Ident:
				used := info.Uses[n]
				if used != nil && used.Pkg() == pkg && (used.Parent() == pkg.Scope() || isMethod(used)) {
					g.add(i, number(used.Pos()))
				}
			case *ast.SelectorExpr:
				if at := unique[n.Sel.Name]; info.Uses[n.Sel] == nil && at.IsValid() {
					g.add(i, number(at))
				}
			}
			return true
		})
	}
	return g
}

// isMethod reports whether an object is a method with a body: those of interfaces are none.
func isMethod(o types.Object) bool {
	f, ok := o.(*types.Func)
	return ok && f.Signature().Recv() != nil && !types.IsInterface(f.Signature().Recv().Type())
}

// uniqueMethods returns the methods that are not exported and whose names no other method or field
// of the package has.
func uniqueMethods(files []*ast.File) map[string]token.Pos {
	found := map[string]token.Pos{}
	add := func(name *ast.Ident, at token.Pos) {
		if _, again := found[name.Name]; again || name.IsExported() {
			at = token.NoPos
		}
		found[name.Name] = at
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					add(n.Name, n.Name.Pos())
				}
			case *ast.StructType:
				for _, field := range n.Fields.List {
					for _, name := range field.Names {
						add(name, token.NoPos)
					}
				}
			}
			return true
		})
	}
	return found
}

// noImporter lets go/types check a package without the packages that it imports.
type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) { return nil, errors.New("not imported") }

// graph has an arrow from i to j where to[i][j].
type graph struct {
	to    [][]bool
	count int
}

func newGraph(n int) graph {
	g := graph{to: make([][]bool, n)}
	for i := range g.to {
		g.to[i] = make([]bool, n)
	}
	return g
}

func (g *graph) add(from, to int) {
	if from != to && !g.to[from][to] {
		g.to[from][to] = true
		g.count++
	}
}

// up returns how many arrows run up in an order of all files from top to bottom.
func (g *graph) up(order []int) (n int) {
	for i, below := range order {
		for _, above := range order[:i] {
			if g.to[below][above] {
				n++
			}
		}
	}
	return n
}

// order returns an order of files from top to bottom in which few arrows run up. The least number
// takes exponential time to find. This takes the order of the greedy heuristic of Eades, Lin and
// Smyth, and then moves single files while that helps.
func (g *graph) order() []int {
	order := g.greedy()
	for better := true; better; {
		better = false
		for _, file := range append([]int(nil), order...) {
			if moved := g.sift(order, file); g.up(moved) < g.up(order) {
				order, better = moved, true
			}
		}
	}
	return order
}

// greedy puts files that nobody uses on top, those that use nobody at the bottom, and in between
// next the one that uses the most others beyond those that use it.
func (g *graph) greedy() []int {
	left := map[int]bool{}
	for i := range g.to {
		left[i] = true
	}
	var top, bottom []int
	for len(left) > 0 {
		best, bestScore, sink := -1, 0, -1
		for i := range g.to {
			if !left[i] {
				continue
			}
			out, in := g.degrees(i, left)
			if out == 0 {
				sink = i
				break
			}
			score := out - in
			if in == 0 {
				score = len(g.to)
			}
			if best < 0 || score > bestScore {
				best, bestScore = i, score
			}
		}
		if sink >= 0 {
			bottom = append([]int{sink}, bottom...)
			delete(left, sink)
			continue
		}
		top = append(top, best)
		delete(left, best)
	}
	return append(top, bottom...)
}

// degrees returns how many of the files that are left a file uses, and how many use it.
func (g *graph) degrees(file int, left map[int]bool) (out, in int) {
	for other := range left {
		if g.to[file][other] {
			out++
		}
		if g.to[other][file] {
			in++
		}
	}
	return out, in
}

// sift returns the order with a file at the best place for it.
func (g *graph) sift(order []int, file int) []int {
	var others []int
	for _, other := range order {
		if other != file {
			others = append(others, other)
		}
	}
	// On top, all arrows to the file run up.
	cost := 0
	for _, other := range others {
		if g.to[other][file] {
			cost++
		}
	}
	best, bestCost := 0, cost
	for i, other := range others {
		if g.to[other][file] {
			cost--
		}
		if g.to[file][other] {
			cost++
		}
		if cost < bestCost {
			best, bestCost = i+1, cost
		}
	}
	moved := append(append([]int(nil), others[:best]...), file)
	return append(moved, others[best:]...)
}

func TestOrderHasNoArrowUpWithoutACycle(t *testing.T) {
	g := newGraph(5)
	for _, arrow := range [][2]int{{4, 0}, {0, 3}, {3, 1}, {1, 2}, {4, 2}} {
		g.add(arrow[0], arrow[1])
	}
	if up := g.up(g.order()); up != 0 {
		t.Errorf("%d arrows run up in %v", up, g.order())
	}
	g.add(2, 0)
	if up := g.up(g.order()); up != 1 {
		t.Errorf("%d arrows run up in %v, which has one cycle", up, g.order())
	}
}
