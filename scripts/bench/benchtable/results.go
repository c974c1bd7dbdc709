// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// results holds the content of all files of a folder.
type results struct {
	samples map[key][]float64 // in the order of the rounds
	missing []string          // "heaptrack: not installed: …"
	rows    map[string][]string
	abouts  map[string]map[string]string
	names   []string // of the kinds measured
}

type key struct{ table, tool, program, figure string }

func readResults(folder string) (*results, error) {
	r := &results{samples: make(map[key][]float64), rows: make(map[string][]string), abouts: make(map[string]map[string]string)}
	files, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, kind, _ := strings.Cut(filepath.Base(file), ".")
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		switch kind {
		case "samples":
			if err := r.addSamples(lines); err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
		case "rows":
			r.rows[name] = lines
		case "about":
			r.names = append(r.names, name)
			r.abouts[name] = make(map[string]string)
			for _, line := range lines {
				word, rest, _ := strings.Cut(line, " ")
				r.abouts[name][word] = strings.TrimSpace(rest)
			}
		}
	}
	return r, nil
}

func (r *results) addSamples(lines []string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) > 2 && words[0] == "missing" {
			r.missing = append(r.missing, "`"+words[1]+"`: "+strings.Join(words[2:], " "))
			continue
		}
		if len(words) == 0 {
			continue
		}
		if len(words) != 5 {
			return fmt.Errorf("line %q has %d words", line, len(words))
		}
		value, err := strconv.ParseFloat(words[4], 64)
		if err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		k := key{words[0], words[1], words[2], words[3]}
		r.samples[k] = append(r.samples[k], value)
	}
	return nil
}

func (r *results) get(table, tool, program, figure string) []float64 {
	return r.samples[key{table, tool, program, figure}]
}

// middle returns the median, or NaN if there are no values.
func middle(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(n-1)/2] + v[n/2]) / 2
}

// spread returns the median of values with the minimum and the maximum: "3,193 (3,010–3,420)".
func spread(values []float64, format func(float64) string) string {
	switch len(values) {
	case 0:
		return "–"
	case 1:
		return format(values[0])
	}
	return format(middle(values)) + " (" + format(slices.Min(values)) + "–" + format(slices.Max(values)) + ")"
}

// pairwise returns f of the values of each round.
func pairwise(a, b []float64, f func(a, b float64) float64) (values []float64) {
	for i := range min(len(a), len(b)) {
		values = append(values, f(a[i], b[i]))
	}
	return values
}

func difference(a, b float64) float64 { return a - b }
func quotient(a, b float64) float64   { return a / b }

// whole formats 12345.6 as 12,346.
func whole(v float64) string {
	s := strconv.FormatInt(int64(math.Round(math.Abs(v))), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if math.Round(v) < 0 {
		s = "−" + s
	}
	return s
}

func fixed(digits int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
}

func percent(v float64) string { return fixed(1)(v*100) + " %" }

func megabytes(v float64) string { return fixed(0)(v/1e6) + " MB" }

// bytes formats a size.
func bytes(v float64) string {
	switch {
	case v < 10_000:
		return whole(v) + " B"
	case v < 10_000_000:
		return whole(v/1000) + " kB"
	}
	return megabytes(v)
}

// table returns a Markdown table: the first column is text, the others are figures.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(head)
	b.WriteString("|---|" + strings.Repeat("---:|", len(head)-1) + "\n")
	for _, row := range rows {
		line(row)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
