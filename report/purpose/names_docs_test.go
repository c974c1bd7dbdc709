// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/lazyregexp"
)

// TestNamesAreDocumented: docs/names.md has each rule and its evidence, and the programs exist.
func TestNamesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| row | part | recognized by | idle | shown by |\n|---|---|---|---|---|\n")
	idle := map[Idle]string{IdleUnknown: "not known", IdleRunning: "`explain -p`", IdleBetween: "all, between evaluations"}
	seen := map[[2]string]bool{}
	for i := range nameRules {
		r := &nameRules[i]
		var by []string
		for _, x := range []struct {
			what string
			re   *lazyregexp.Regexp
		}{{"file", r.library}, {"Python file", r.file}, {"function", r.function}} {
			if x.re != nil {
				by = append(by, x.what+" `"+strings.ReplaceAll(x.re.String(), "|", `\|`)+"`")
			}
		}
		if len(r.of) > 0 {
			by = append(by, "calls "+strings.Join(r.of, ", "))
		}
		shown := "**not proven**"
		switch {
		case r.proof == "":
		case !strings.HasPrefix(r.proof, "testdata/"):
			shown = r.proof
		default:
			shown = "`" + filepath.Base(r.proof) + "`"
			if _, err := os.Stat(filepath.Join("../..", r.proof)); err != nil {
				t.Error(err)
			}
		}
		name := Row{Kind: r.kind, Library: r.name}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", name.Name(), r.part, strings.Join(by, "; "), idle[idles[[2]string{r.name, r.part}]], shown)
		seen[[2]string{r.name, r.part}] = true
	}
	for key := range idles {
		if !seen[key] {
			t.Errorf("no rule has the pool %q", key)
		}
	}
	const file, begin, end = "../../docs/names.md", "<!-- rules -->\n", "<!-- end of rules -->"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table between %q and %q", file, begin, end)
	}
	text := before + begin + table.String() + end + after
	switch {
	case text == string(old):
	case flag.Lookup("update").Value.String() == "true": // package reporttest defines it
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is out of date: go test ./report/purpose -run Documented -update writes it", file)
	}
}

// TestNamesFitWhatONNXRuntimeImports: of libraries that no package has, the files and functions
// that a real library asks the loader for have their names.
func TestNamesFitWhatONNXRuntimeImports(t *testing.T) {
	found, err := exec.Command("../../scripts/real-library.sh", "--offline", "onnx").Output()
	folder := strings.TrimSpace(string(found))
	if err != nil || strings.HasPrefix(folder, "skipped:") {
		t.Skip(folder, err)
	}
	for provider, names := range map[string]map[string]int{ // name and part: at least how many
		"cuda":     {"cuDNN": 1, "cuDNN, handles": 1},
		"tensorrt": {"cuDNN": 1, "TensorRT": 3},
	} {
		f, err := elf.Open(filepath.Join(folder, "libonnxruntime_providers_"+provider+".so"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files, err := f.ImportedLibraries()
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		for _, file := range files {
			frame := mapped(file, "")
			if r := nameRuleOf(&frame); r != nil {
				found[r.name]++
			}
		}
		for _, s := range symbols {
			frame := mapped(s.Library, s.Name)
			if r := nameRuleOf(&frame); s.Library != "" && r != nil && r.part != "" {
				found[r.name+", "+r.part]++
			}
		}
		for name, n := range names {
			if found[name] < n {
				t.Errorf("%s: %d of %s, want %d: %v", provider, found[name], name, n, files)
			}
		}
	}
}
