// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testOrScript = regexp.MustCompile(`\bgo test\b|\b(?:Test|Fuzz)[A-Z]\w+|scripts/[\w/-]+\.(?:sh|py)`)
	pageLink     = regexp.MustCompile(`(?m)^\| \[[^\]]*\]\(([\w./-]+)\)`)

	// forUsers are the groups of docs/README.md whose pages name no tests and no scripts of the
	// repository, but those that users run.
	forUsers = []string{"## Use", "## Operate", "## Trust"}
	userRuns = []string{"scripts/install.sh", "scripts/release.sh", "scripts/gpu-check.sh", "scripts/demo.sh", "scripts/real-driver.sh"}
	// generated says in a page what writes a part of it.
	generated = regexp.MustCompile(`(?s)<!--.*?-->`)
	// howMeasured are pages about measurements, which name how to repeat them.
	howMeasured = []string{"docs/accuracy.md", "BENCHMARKS.md"}
)

// TestPagesForUsersNameNoTests: the proof of what they say is in CONTRIBUTING.md.
func TestPagesForUsersNameNoTests(t *testing.T) {
	pages := 0
	for _, group := range forUsers {
		_, list, _ := strings.Cut(read(t, "docs/README.md"), group)
		list, _, _ = strings.Cut(list, "\n## ")
		for _, row := range pageLink.FindAllStringSubmatch(list, -1) {
			page := path.Join("docs", row[1])
			if slices.Contains(howMeasured, page) {
				continue
			}
			pages++
			for _, name := range testOrScript.FindAllString(generated.ReplaceAllString(read(t, page), ""), -1) {
				if !slices.Contains(userRuns, name) {
					t.Errorf("%s names %s, which belongs to CONTRIBUTING.md", page, name)
				}
			}
		}
	}
	if pages < 25 {
		t.Errorf("the groups %q have %d pages", forUsers, pages)
	}
}
