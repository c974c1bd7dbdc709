// SPDX-License-Identifier: Apache-2.0

// Package importrules tests the structure of the repository: that packages import each other as the
// table in docs/packages.md says, and that types, files, folders and the whole keep to limits.
package importrules

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "github.com/vramprof/vramprof/"
	document = "docs/packages.md"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// onlyUser lists modules that one package alone may import.
var onlyUser = map[string]string{
	"go.opentelemetry.io/ebpf-profiler": "tracer/unwind",
	"github.com/NVIDIA/go-nvml":         "tracer/nvml",
	"github.com/google/pprof":           "report/profile",
	"github.com/mattn/go-runewidth":     "report/format",
	"github.com/urfave/cli":             "cmd/vramprof",
	"github.com/yuin/goldmark":          "internal/manual",
}

func TestPackagesImportWhatTheTableInDocsSays(t *testing.T) {
	rows := table(t)
	imported := map[string]map[string]bool{}
	for _, file := range sources(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		if imported[pkg] == nil {
			imported[pkg] = map[string]bool{}
		}
		for _, name := range imports(t, file) {
			if ours, ok := strings.CutPrefix(name, module); ok {
				imported[pkg][ours] = true
			} else if name+"/" == module {
				imported[pkg]["."] = true
			}
			if within(pkg, "tracer/ledger") && strings.Contains(name, ".") && !within(name, module+"tracer/ledger") {
				t.Errorf("%s: %s must import only the standard library, not %s", file, pkg, name)
			}
			for prefix, user := range onlyUser {
				if within(name, prefix) && pkg != user {
					t.Errorf("%s: only %s may import %s", file, user, name)
				}
			}
		}
	}
	below := map[string]bool{}
	for _, r := range slices.Backward(rows) {
		actual, exists := imported[r.pkg]
		if !exists {
			t.Errorf("%s has package %s, which does not exist", document, r.pkg)
		}
		delete(imported, r.pkg)
		for _, name := range r.imports {
			if !actual[name] {
				t.Errorf("%s says that %s imports %s: it does not", document, r.pkg, name)
			}
			if !below[name] {
				t.Errorf("%s: the row of %s must stand below that of %s", document, name, r.pkg)
			}
		}
		for name := range actual {
			if !slices.Contains(r.imports, name) {
				t.Errorf("%s imports %s: %s does not allow it", r.pkg, name, document)
			}
		}
		below[r.pkg] = true
	}
	for pkg := range imported {
		t.Errorf("%s has no row for package %s", document, pkg)
	}
}

// row is a package in the table, with what it may import.
type row struct {
	pkg     string
	job     string
	imports []string
}

// table reads lines such as "| `tracer/nvml` | what the driver reports | `tracer/ledger` |".
func table(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile("../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(line, "| `") {
			continue
		}
		r := row{pkg: quoted.FindStringSubmatch(cells[1])[1], job: strings.TrimSpace(cells[2])}
		for _, match := range quoted.FindAllStringSubmatch(cells[3], -1) {
			r.imports = append(r.imports, match[1])
		}
		rows = append(rows, r)
	}
	if len(rows) < 20 {
		t.Fatalf("%s has a table of %d packages", document, len(rows))
	}
	return rows
}

// within reports whether a package belongs to a module, of any major version.
func within(pkg, module string) bool { return pkg == module || strings.HasPrefix(pkg, module+"/") }

func imports(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", file), nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestTheTreeInDocsNamesOnlyFoldersThatExist, so that it follows the names of packages.
func TestTheTreeInDocsNamesOnlyFoldersThatExist(t *testing.T) {
	text, err := os.ReadFile("../../" + document)
	if err != nil {
		t.Fatal(err)
	}
	folder := regexp.MustCompile(`([\w./-]+)/(?: |$)`)
	above, found := "", 0
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		rest, ok := strings.CutPrefix(line, "    ")
		if !ok || strings.HasPrefix(rest, "    ") {
			continue
		}
		inner := strings.HasPrefix(rest, "  ")
		names, _, _ := strings.Cut(strings.TrimSpace(rest), "  ")
		for _, match := range folder.FindAllStringSubmatch(names, -1) {
			name := match[1]
			if inner {
				name = above + "/" + name
			} else {
				above = name
			}
			found++
			if info, err := os.Stat("../../" + name); err != nil || !info.IsDir() {
				t.Errorf("%s: the tree has %s, which is no folder", document, name)
			}
		}
	}
	if found < 20 {
		t.Fatalf("%s has a tree of %d folders", document, found)
	}
}
