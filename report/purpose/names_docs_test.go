// SPDX-License-Identifier: Apache-2.0

package purpose

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamesAreDocumented: docs/names.md has each rule and its evidence, and the programs exist.
func TestNamesAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| row | part | recognized by | shown by |\n|---|---|---|---|\n")
	for i := range nameRules {
		r := &nameRules[i]
		var by []string
		for _, x := range []struct {
			what string
			re   *regexp.Regexp
		}{{"file", r.library}, {"Python file", r.file}, {"function", r.function}} {
			if x.re != nil {
				by = append(by, x.what+" `"+strings.ReplaceAll(x.re.String(), "|", `\|`)+"`")
			}
		}
		if len(r.of) > 0 {
			by = append(by, "calls "+strings.Join(r.of, ", "))
		}
		shown := "**not proven**"
		if r.proof != "" {
			shown = "`" + filepath.Base(r.proof) + "`"
			if _, err := os.Stat(filepath.Join("../..", r.proof)); err != nil {
				t.Error(err)
			}
		}
		name := Row{Kind: r.kind, Library: r.name}
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", name.Name(), r.part, strings.Join(by, "; "), shown)
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
