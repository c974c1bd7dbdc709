// SPDX-License-Identifier: Apache-2.0

// Package docs tests the documents: their length, links, generated parts and words.
package docs

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated documents")

const root = "../.."

// maxWords is how long a page may be. Everything else belongs to a page in docs.
var maxWords = map[string]int{
	"README.md":     1100,
	"BENCHMARKS.md": 1200,
	"SECURITY.md":   2000,
}

func TestPagesAreShort(t *testing.T) {
	for name, most := range maxWords {
		if n := len(strings.Fields(read(t, name))); n > most {
			t.Errorf("%s has %d words, at most %d are allowed", name, n, most)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinksLeadToFilesAndHeadings checks every relative link of the documents:
// "../SECURITY.md#limits".
func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	for _, name := range tracked(t, "*.md") {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, name), ""), -1) {
			path, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(match[1], "://") {
				continue
			}
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, match[1])
				continue
			}
			if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no heading for the link %s", name, target, match[1])
			}
		}
	}
}

// TestEveryPageIsLinked finds pages in docs that no other document leads to.
func TestEveryPageIsLinked(t *testing.T) {
	linked := map[string]bool{}
	for _, name := range tracked(t, "*.md") {
		for _, match := range link.FindAllStringSubmatch(read(t, name), -1) {
			path, _, _ := strings.Cut(match[1], "#")
			linked[filepath.Join(filepath.Dir(name), path)] = true
		}
	}
	for _, name := range tracked(t, "docs/*") {
		if !linked[name] {
			t.Errorf("no document links to %s", name)
		}
	}
}

// anchors returns the anchors that GitHub makes of the headings of a page: "Kernel memory" becomes
// "kernel-memory".
func anchors(text string) map[string]bool {
	list := map[string]bool{}
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 127:
				return r
			}
			return -1
		}, strings.ToLower(match[1]))
		list[anchor] = true
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// tracked lists the files of the repository that match a pattern of git, whether they are committed
// or not.
func tracked(t *testing.T, pattern string) []string {
	t.Helper()
	command := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", pattern)
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	var list []string
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			list = append(list, name)
		}
	}
	return list
}

// checkGenerated compares a document with what it should be; -update writes it.
func checkGenerated(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, name) != want {
		t.Errorf("%s is out of date: go test ./internal/docs -update writes it", name)
	}
}
