// SPDX-License-Identifier: Apache-2.0

// Package arrows tests that packages import each other only as the table in
// README.md ("Packages") says.
package arrows

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/vramprof/vramprof/"

// mayImport lists what of ours each package imports, its tests aside.
var mayImport = map[string][]string{
	"bpf":                          {},
	"cmd/vramprof":                 {"report/export", "report/html", "report/timeline", "tracer/capture", "report", "symbolize", "tracer", "tracer/confine", "tracer/environ", "tracer/ledger", "tracer/nvml", "tracer/preflight", "tracer/workload"},
	"scripts/bench/benchtable":     {},
	"internal/fakecuda":            {}, // for tests
	"scripts/bench/floor":          {"tracer/place"},
	"scripts/bench/kernelmemory":   {"tracer"},
	"scripts/bench/peers":          {},
	"internal/realtorch":           {"internal/fakecuda"},       // for tests
	"internal/sums":                {"report", "tracer/ledger"}, // for tests
	"report":                       {"report/frames", "symbolize", "report/timeline", "tracer/ledger", "report/verdict"},
	"report/frames":                {"symbolize"},
	"tracer/capture":               {"tracer/capture/internal/wire", "symbolize", "tracer/ledger"},
	"tracer/capture/internal/wire": {},
	"report/export":                {"report", "report/frames", "symbolize", "report/timeline", "tracer/ledger"},
	"report/html":                  {"report", "report/frames", "symbolize", "report/timeline", "tracer/ledger", "report/verdict"},
	"symbolize":                    {"symbolize/internal/dwarf"},
	"symbolize/internal/dwarf":     {},
	"cmd/vramprof/test/accuracy":   {},
	"cmd/vramprof/test/e2e":        {},
	"cmd/vramprof/test/leaks":      {},
	"report/timeline":              {"tracer/ledger"},
	"report/verdict":               {"report/frames", "symbolize", "tracer/ledger"},
	"tracer":                       {"bpf", "symbolize", "tracer/environ", "tracer/fileid", "tracer/ledger", "tracer/patience", "tracer/place", "tracer/unwind", "tracer/workload"},
	"tracer/confine":               {},
	"tracer/environ":               {"tracer/patience"},
	"tracer/fileid":                {},
	"tracer/ledger":                {},
	"tracer/nvml":                  {"tracer/ledger"},
	"tracer/patience":              {},
	"tracer/place":                 {},
	"tracer/preflight":             {},
	"tracer/unwind":                {"bpf", "tracer/fileid", "tracer/patience"},
	"tracer/workload":              {"symbolize", "tracer/ledger"},
}

// onlyUser lists modules that one package alone may import.
var onlyUser = map[string]string{
	"go.opentelemetry.io/ebpf-profiler": "tracer/unwind",
	"github.com/NVIDIA/go-nvml":         "tracer/nvml",
	"github.com/google/pprof":           "report",
	"github.com/urfave/cli":             "cmd/vramprof",
}

func TestPackagesImportOnlyAlongTheArrows(t *testing.T) {
	for _, file := range sources(t) {
		pkg := filepath.ToSlash(filepath.Dir(file))
		allowed, known := mayImport[pkg]
		if !known {
			t.Errorf("%s: package %s is not in the table", file, pkg)
			continue
		}
		for _, name := range imports(t, file) {
			if ours, ok := strings.CutPrefix(name, module); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s: %s must not import %s", file, pkg, ours)
			}
			if pkg == "tracer/ledger" && strings.Contains(name, ".") {
				t.Errorf("%s: %s must import only the standard library, not %s", file, pkg, name)
			}
			for prefix, user := range onlyUser {
				if within(name, prefix) && pkg != user {
					t.Errorf("%s: only %s may import %s", file, user, name)
				}
			}
		}
	}
}

// within says whether a package belongs to a module, of any major version.
func within(pkg, module string) bool { return pkg == module || strings.HasPrefix(pkg, module+"/") }

// sources lists the Go files of the repository but for tests, for every
// operating system and build tag.
func sources(t *testing.T) []string {
	t.Helper()
	root := os.DirFS("../..")
	var files []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata"):
			return fs.SkipDir
		case strings.HasSuffix(base, ".go") && !strings.HasSuffix(base, "_test.go"):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

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
