// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
)

// tied is by how much the median may be worse before a comparison is a loss.
const tied = 0.05

// value returns the median of a figure.
func (r *results) value(table, tool, program, name string) (float64, error) {
	f, ok := r.figures[key{table, tool, program, name}]
	if !ok {
		return 0, fmt.Errorf("no figure %s %s %s %s", table, tool, program, name)
	}
	return f.median, nil
}

// outcome returns whether a tool wins, loses or ties with another in a figure of which less is
// better. It wins only if its worst round is better than the other's best one.
func (r *results) outcome(table, tool, other, program, name string) (string, error) {
	a, ok := r.figures[key{table, tool, program, name}]
	b, known := r.figures[key{table, other, program, name}]
	switch {
	case !ok || !known:
		return "", fmt.Errorf("no figures %s %s and %s %s %s", table, tool, other, program, name)
	case a.high < b.low:
		return "wins", nil
	case a.median > b.median*(1+tied):
		return "loses", nil
	}
	return "tie", nil
}

// budgetSummary returns how many targets of bench.sh are met.
func (r *results) budgetSummary() string {
	met, targets := 0, 0
	for _, name := range r.names {
		for _, line := range r.rows[name] {
			cells := strings.Split(line, "\t")
			if cells[0] != "row" || len(cells) != 6 {
				continue
			}
			switch {
			case strings.HasPrefix(cells[5], "missed"):
				targets++
			case strings.HasPrefix(cells[5], "met"):
				met++
				targets++
			}
		}
	}
	if targets == 0 {
		return notMeasured
	}
	return fmt.Sprintf("vramprof meets %d of %d targets.", met, targets)
}

// maxLoad is the load average above which other work may have disturbed a measurement.
const maxLoad = 4

// conditions returns which results need to be measured again: those of a tree that was not
// committed, or beside other work.
func (r *results) conditions() string {
	var dirty, busy []string
	for _, name := range r.names {
		if strings.HasSuffix(r.abouts[name]["vramprof"], "-dirty") {
			dirty = append(dirty, name)
		}
		first, _, _ := strings.Cut(r.abouts[name]["load"], " ")
		if load, err := strconv.ParseFloat(first, 64); err == nil && load > maxLoad {
			busy = append(busy, fmt.Sprintf("%s (%s)", name, first))
		}
	}
	text := fmt.Sprintf("%d results, of which %d were measured with changes that were not committed", len(r.names), len(dirty))
	if len(busy) > 0 {
		text += ", and these began with a load average above " + strconv.Itoa(maxLoad) + ": " + strings.Join(busy, ", ")
	}
	return text + "."
}
