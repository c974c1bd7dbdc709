// SPDX-License-Identifier: Apache-2.0

package importrules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is where comments wrap, with tabs of 4 columns.
const maxColumns = 100

var commentLine = regexp.MustCompile(`^\s*// \S`)

// TestCommentsWrap: comments of Go and C have at most 100 columns, except what is preformatted.
// Programs of tests, whose line numbers are expected, and outputs of examples are left out.
func TestCommentsWrap(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "*.go", "*.c", "*.h").Output()
	if err != nil {
		t.Skip(err)
	}
	files := strings.Fields(string(out))
	if len(files) < 500 {
		t.Fatalf("only %d files", len(files))
	}
	for _, name := range files {
		if strings.Contains(name, "testdata/") || strings.HasSuffix(name, "example_test.go") || strings.HasSuffix(name, ".pb.go") || strings.HasSuffix(name, "/vmlinux.h") {
			continue
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // deleted, and not yet committed
		}
		for i, line := range strings.Split(string(text), "\n") {
			wide := strings.ReplaceAll(line, "\t", "    ")
			if n := utf8.RuneCountInString(wide); n > maxColumns && commentLine.MatchString(line) {
				t.Errorf("%s:%d: a comment of %d columns", name, i+1, n)
			}
		}
	}
}
