// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree is the hand-written Go of the repository outside tests, parsed once for all limits. It has
// the files for every operating system and build tag.
type tree struct {
	fset     *token.FileSet
	packages []*sourcePackage // by path
}

type sourcePackage struct {
	path  string // of its folder, as in docs/packages.md
	files []*sourceFile
}

type sourceFile struct {
	name   string // without its folder
	lines  int
	parsed *ast.File
}

func parseTree(t *testing.T) tree {
	t.Helper()
	tr := tree{fset: token.NewFileSet()}
	byPath := map[string]*sourcePackage{}
	for _, name := range sources(t) {
		text := contents(t, name)
		parsed, err := parser.ParseFile(tr.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(parsed) {
			continue
		}
		folder := path.Dir(name)
		if byPath[folder] == nil {
			byPath[folder] = &sourcePackage{path: folder}
			tr.packages = append(tr.packages, byPath[folder])
		}
		p := byPath[folder]
		p.files = append(p.files, &sourceFile{path.Base(name), lines(text), parsed})
	}
	slices.SortFunc(tr.packages, func(a, b *sourcePackage) int { return strings.Compare(a.path, b.path) })
	return tr
}

// goLines returns how many lines the hand-written files of a package have.
func (p *sourcePackage) goLines() (sum int) {
	for _, f := range p.files {
		sum += f.lines
	}
	return sum
}

// otherLines returns how many lines of C, shell and JavaScript are outside tests. A file counts by
// its suffix, or as shell by its first line.
func otherLines(t *testing.T) (sum int) {
	t.Helper()
	for _, name := range walk(t, func(string) bool { return true }) {
		if base := path.Base(name); strings.HasPrefix(base, "test-") || base == "test.sh" {
			continue
		}
		switch path.Ext(name) {
		case ".c", ".h", ".S", ".sh", ".js":
			sum += lines(contents(t, name))
		case "":
			if text := contents(t, name); bytes.HasPrefix(text, []byte("#!/bin/sh")) || bytes.HasPrefix(text, []byte("#!/bin/bash")) {
				sum += lines(text)
			}
		}
	}
	return sum
}

func lines(text []byte) int { return bytes.Count(text, []byte("\n")) }

func contents(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// walk lists the files of the repository that a function wants, except below testdata and folders
// whose names begin with a dot.
func walk(t *testing.T, wanted func(base string) bool) (files []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata"):
			return fs.SkipDir
		case d.Type().IsRegular() && wanted(base):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sources lists the Go files of the repository except tests, for every operating system and build
// tag.
func sources(t *testing.T) []string {
	t.Helper()
	return walk(t, func(base string) bool {
		return strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go")
	})
}
