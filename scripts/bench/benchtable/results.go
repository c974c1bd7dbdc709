// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// results holds the content of all files of a folder.
type results struct {
	figures map[key]figure
	missing []string // "`heaptrack`: not installed: …"
	rows    map[string][]string
	abouts  map[string]map[string]string
	names   []string // of the kinds measured
}

type key struct{ table, tool, program, figure string }

// figure is the median of the rounds, with the lowest and the highest. Rounds is 1 if only the
// median is known.
type figure struct {
	median, low, high float64
	rounds            int
}

func readResults(folder string) (*results, error) {
	r := &results{figures: make(map[key]figure), rows: make(map[string][]string), abouts: make(map[string]map[string]string)}
	files, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		name, kind, _ := strings.Cut(filepath.Base(file), ".")
		switch kind {
		case "samples":
			err = r.readSamples(file)
		case "figures":
			err = eachLine(file, r.addFigure)
		case "rows":
			err = eachLine(file, func(line string) error {
				r.rows[name] = append(r.rows[name], line)
				return nil
			})
		case "about":
			r.names = append(r.names, name)
			r.abouts[name] = make(map[string]string)
			err = eachLine(file, func(line string) error {
				word, rest, _ := strings.Cut(line, " ")
				r.abouts[name][word] = strings.TrimSpace(rest)
				return nil
			})
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	return r, nil
}

func eachLine(file string, do func(string) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if err := do(line); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
	}
	return nil
}

// split returns the key and the values of a line of figures or samples. A line about a tool that is
// missing has none.
func (r *results) split(line string) (k key, values []float64, err error) {
	words := strings.Fields(line)
	if len(words) > 2 && words[0] == "missing" {
		r.missing = append(r.missing, "`"+words[1]+"`: "+strings.Join(words[2:], " "))
		return key{}, nil, nil
	}
	if len(words) < 5 {
		return key{}, nil, fmt.Errorf("has %d words", len(words))
	}
	for _, word := range words[4:] {
		value, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return key{}, nil, err
		}
		values = append(values, value)
	}
	return key{words[0], words[1], words[2], words[3]}, values, nil
}

func (r *results) addFigure(line string) error {
	k, values, err := r.split(line)
	switch {
	case err != nil || values == nil:
		return err
	case len(values) == 1:
		r.figures[k] = figure{values[0], values[0], values[0], 1}
	case len(values) == 3:
		r.figures[k] = figure{values[0], values[1], values[2], 3}
	default:
		return fmt.Errorf("has %d values", len(values))
	}
	return nil
}

// writeFigures writes the figures as readResults reads them.
func (r *results) writeFigures(w io.Writer) error {
	var out strings.Builder
	for _, line := range r.missing {
		tool, why, _ := strings.Cut(line, ": ")
		fmt.Fprintf(&out, "missing %s %s\n", strings.Trim(tool, "`"), why)
	}
	keys := slices.SortedFunc(maps.Keys(r.figures), func(a, b key) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.tool, b.tool), cmp.Compare(a.program, b.program), cmp.Compare(a.figure, b.figure))
	})
	for _, k := range keys {
		f := r.figures[k]
		fmt.Fprintf(&out, "%s %s %s %s %.6g", k.table, k.tool, k.program, k.figure, f.median)
		if f.rounds > 1 {
			fmt.Fprintf(&out, " %.6g %.6g", f.low, f.high)
		}
		out.WriteString("\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func (r *results) has(table, tool, program, name string) bool {
	_, ok := r.figures[key{table, tool, program, name}]
	return ok
}

// spread returns the median of a figure with the lowest and the highest round: "3,193
// (3,010–3,420)".
func (r *results) spread(table, tool, program, name string, format func(float64) string) string {
	f, ok := r.figures[key{table, tool, program, name}]
	switch {
	case !ok:
		return "–"
	case f.rounds == 1:
		return format(f.median)
	}
	return format(f.median) + " (" + format(f.low) + "–" + format(f.high) + ")"
}

// middle returns the median of a figure.
func (r *results) middle(table, tool, program, name string, format func(float64) string) string {
	f, ok := r.figures[key{table, tool, program, name}]
	if !ok {
		return "–"
	}
	return format(f.median)
}

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

func seconds(digits int) func(float64) string {
	return func(v float64) string { return fixed(digits)(v) + " s" }
}

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
