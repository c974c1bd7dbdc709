// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write BENCHMARKS.md and its pictures")

const repository = "../../.."

func readText(t *testing.T, name, text string) *results {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := readResults(folder)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const threeRounds = `calls none c_cuda ns_per_pair 100
calls none c_cuda ns_per_pair 200
calls none c_cuda ns_per_pair 300
calls vramprof c_cuda ns_per_pair 2100
calls vramprof c_cuda ns_per_pair 3200
calls vramprof c_cuda ns_per_pair 12345
missing heaptrack not installed: heaptrack
`

func TestFiguresOfTheSameRoundAreCompared(t *testing.T) {
	r := readText(t, "peers.samples", threeRounds)
	if got := r.spread("calls", "vramprof", "c_cuda", "lost", whole); got != "3,000 (2,000–12,045)" {
		t.Errorf("lost: %s", got)
	}
	if got := r.missingList(); !strings.Contains(got, "`heaptrack`: not installed: heaptrack") {
		t.Errorf("missing: %s", got)
	}
	if got := r.spread("calls", "memleak", "c_cuda", "lost", whole); got != "–" {
		t.Errorf("no figure is shown as %s", got)
	}
}

func TestFiguresAreReadAsWritten(t *testing.T) {
	r := readText(t, "peers.samples", threeRounds)
	var text strings.Builder
	if err := r.writeFigures(&text); err != nil {
		t.Fatal(err)
	}
	again := readText(t, "peers.figures", text.String())
	if !maps.Equal(r.figures, again.figures) || len(again.figures) != 3 || again.missingList() != r.missingList() {
		t.Errorf("%v\nis read as\n%v", r.figures, again.figures)
	}
}

// A result that was not measured is marked as missing, and no figure replaces it.
func TestTablesShowWhatIsNotMeasured(t *testing.T) {
	r := readText(t, "rate.rows", "section\t100,000 events/s\nrow\tevents lost\t0\t3 of 9\t\tmissed")
	if got := r.budget("rate", "idle"); !strings.Contains(got, "| events lost | 0 | 3 of 9 |  | missed |") || !strings.Contains(got, "idle: "+notMeasured) {
		t.Error(got)
	}
	r.names = []string{"rate"}
	if got := r.missed(); !strings.HasSuffix(got, "| 100,000 events/s | events lost | 0 | 3 of 9 |  |  |") {
		t.Error(got)
	}
	for _, got := range []string{r.calls("plain"), r.calls("named"), r.ratios(), r.books("rate"), r.ready(), r.torch("steps"), r.torch("books"), r.heap()} {
		if got != notMeasured {
			t.Error(got)
		}
	}
	if quick := readText(t, "rate.about", "machine X\nrounds 1").quick(); !strings.Contains(quick, "Not figures to quote") {
		t.Errorf("quick: %q", quick)
	}
}

func TestBenchmarksIsOfTheCommittedResults(t *testing.T) {
	files, err := page(repository)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := files.write(repository); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is not that of scripts/bench/results and the template: go test ./scripts/bench/benchtable -update (%v)", name, err)
		}
		for _, wrong := range []string{"NaN", notMeasured} {
			if strings.Contains(want, wrong) {
				t.Errorf("%s has %q", name, wrong)
			}
		}
	}
}

// Each row of bench.sh has committed results, so that no section of the page is left out.
func TestEveryRowHasResults(t *testing.T) {
	script, err := os.ReadFile(repository + "/scripts/bench.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(script), " rows=\"")
	list, _, _ = strings.Cut(list, "\"")
	if !ok || list == "" {
		t.Fatal("bench.sh has no list of rows")
	}
	r, err := readResults("../results")
	if err != nil {
		t.Fatal(err)
	}
	template, err := os.ReadFile("../results.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(list) {
		if r.abouts[name] == nil {
			t.Errorf("scripts/bench/results has no %s.about: scripts/bench.sh --only %[1]s --markdown", name)
		}
		if r.rows[name] != nil && !strings.Contains(string(template), `"`+name+`"`) {
			t.Errorf("results.md.tmpl has no rows of %s", name)
		}
	}
	for _, name := range r.names {
		if !slices.Contains(strings.Fields(list), name) {
			t.Errorf("bench.sh has no row %s", name)
		}
	}
}

func TestAWinNeedsEachRound(t *testing.T) {
	r := readText(t, "peers.figures", `calls a p lost 10 9 11
calls b p lost 12 10.5 13
calls c p lost 20 19 21
calls d p lost 9.8 9 12
calls e p lost 9 8 12
`)
	for other, want := range map[string]string{"b": "tie", "c": "wins", "d": "tie", "e": "loses"} {
		if got, err := r.outcome("calls", "a", other, "p", "lost"); got != want || err != nil {
			t.Errorf("a against %s: %s (%v), want %s", other, got, err, want)
		}
	}
	if _, err := r.outcome("calls", "a", "f", "p", "lost"); err == nil {
		t.Error("a figure that was not measured has an outcome")
	}
}

func TestConditionsNameWhatToMeasureAgain(t *testing.T) {
	r := readText(t, "rate.about", "vramprof 0880c7f-dirty\nload 156.29 44 19, after 0.35")
	if got := r.conditions(); !strings.Contains(got, "1 results, of which 1 were") || !strings.Contains(got, "rate (156.29)") {
		t.Error(got)
	}
}
