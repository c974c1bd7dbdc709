// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

// TestManifestsAreOfTheirChart compares the files that packaging/kubernetes is written from with
// chart.sum there. scripts/test-fleet.sh writes the manifests again, with helm.
func TestManifestsAreOfTheirChart(t *testing.T) {
	const sums = "packaging/kubernetes/chart.sum"
	files := 0
	for line := range strings.Lines(read(t, sums)) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			t.Fatalf("%s: line %q", sums, line)
		}
		files++
		if fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, fields[1])))) != fields[0] {
			t.Errorf("packaging/kubernetes was not written from this %s: run scripts/fleet/generate.sh", fields[1])
		}
	}
	if files < 8 {
		t.Errorf("%s lists %d files", sums, files)
	}
}
