// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTheEstimateHasTheDocumentedFigures: the advice on --checkpoint and --offload has the figures
// of docs/accuracy.md, "Unseen jobs": how many were within 5 %, and the largest error of the
// table.
func TestTheEstimateHasTheDocumentedFigures(t *testing.T) {
	page, err := os.ReadFile("../../docs/accuracy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, unseen, _ := strings.Cut(string(page), "### Unseen jobs")
	within := regexp.MustCompile("of those of `--checkpoint` and `--offload`, (\\d+ of \\d+)").FindStringSubmatch(unseen)
	most := 0.0
	for _, row := range regexp.MustCompile(`(?m)^\| \d: .*`).FindAllString(unseen, -1) {
		for _, percent := range regexp.MustCompile(`[+-]([\d.]+) %`).FindAllStringSubmatch(row, -1) {
			x, _ := strconv.ParseFloat(percent[1], 64)
			most = max(most, x)
		}
	}
	if within == nil {
		t.Fatal("docs/accuracy.md has no figure of --checkpoint and --offload")
	}
	want := fmt.Sprintf("an estimate: for programs that were new to vramprof, %s were within 5%%, and the farthest was %.0f%% too high", within[1], most)
	if got := strings.ReplaceAll(estimate, "%%", "%"); got != want {
		t.Errorf("%q, docs/accuracy.md says %q", got, want)
	}
}
