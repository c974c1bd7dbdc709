// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFiguresOfTheSameRoundAreCompared(t *testing.T) {
	r := &results{samples: make(map[key][]float64)}
	err := r.addSamples([]string{
		"calls none c_cuda ns_per_pair 100", "calls none c_cuda ns_per_pair 200", "calls none c_cuda ns_per_pair 300",
		"calls vramprof c_cuda ns_per_pair 2100", "calls vramprof c_cuda ns_per_pair 3200", "calls vramprof c_cuda ns_per_pair 12345",
		"missing heaptrack not installed: heaptrack",
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := spread(r.lost("vramprof", "c_cuda"), whole); got != "3,000 (2,000–12,045)" {
		t.Errorf("lost: %s", got)
	}
	if got := r.missingList(); !strings.Contains(got, "`heaptrack`: not installed: heaptrack") {
		t.Errorf("missing: %s", got)
	}
	if !math.IsNaN(middle(nil)) || spread(nil, whole) != "–" {
		t.Error("no figure is shown as one")
	}
}

// A result that was not measured is marked as missing, and no figure replaces it.
func TestTheTemplateSaysWhatIsNotMeasured(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"rate.rows":  "section\t100,000 events/s\nrow\tevents lost\t0\t3 of 9\t\tmissed",
		"rate.about": "machine X\ndate today\nrounds 1",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	if err := write(&out, "../BENCHMARKS.md.tmpl", folder); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| events lost | 0 | 3 of 9 |  | missed |", "Not figures to quote", "idle: not measured", notMeasured} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "<no value>") {
		t.Errorf("a figure without a measurement:\n%s", out.String())
	}
}
