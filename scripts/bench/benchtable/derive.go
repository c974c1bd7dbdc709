// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// readSamples adds the figures of a file of samples: those of each line, and what tools cost beside
// others in the same round.
func (r *results) readSamples(file string) error {
	samples := make(samples)
	err := eachLine(file, func(line string) error {
		k, values, err := r.split(line)
		if values != nil {
			samples[k] = append(samples[k], values...)
		}
		return err
	})
	if err != nil {
		return err
	}
	samples.derive()
	if r.figures == nil {
		r.figures = make(map[key]figure)
	}
	for k, values := range samples {
		r.figures[k] = figure{middle(values), slices.Min(values), slices.Max(values), len(values)}
	}
	return nil
}

// samples holds the values of the rounds, in their order.
type samples map[key][]float64

// derive adds figures that compare values of the same round.
func (s samples) derive() {
	lost := func(k key) []float64 {
		return pairwise(s[k], s[key{k.table, "none", k.program, k.figure}], func(a, b float64) float64 { return a - b })
	}
	of := func(k key, tool string) key { return key{k.table, tool, k.program, k.figure} }
	add := make(samples)
	set := func(k key, name string, values []float64) {
		if len(values) > 0 {
			add[key{k.table, k.tool, k.program, name}] = values
		}
	}
	for k, values := range s {
		switch k.table + " " + k.figure {
		case "calls ns_per_pair", "heap ns_per_pair":
			if k.tool == "none" {
				continue
			}
			set(k, "lost", lost(k))
			if k.tool == "vramprof" {
				set(k, "to_floor", pairwise(lost(k), lost(of(k, "floor")), quotient))
			}
			if strings.HasPrefix(k.tool, "bpftrace") || k.tool == "memleak" {
				set(k, "to_vramprof", pairwise(lost(k), lost(of(k, "vramprof")), quotient))
			}
		case "torch step_ms":
			set(k, "to_alone", pairwise(values, s[of(k, "none")], quotient))
		case "books allocations":
			set(k, "rate", pairwise(values, s[key{k.table, k.tool, k.program, "wall_s"}], quotient))
		case "books said_allocations", "books said_live_bytes", "torch said_allocations":
			actual := strings.TrimPrefix(k.figure, "said_")
			set(k, "of_million_"+actual, pairwise(values, s[key{k.table, k.tool, k.program, actual}], func(a, b float64) float64 { return 1e6 * a / b }))
		case "books cpu_s", "torch cpu_s":
			set(k, "cpu", pairwise(values, s[key{k.table, k.tool, k.program, "wall_s"}], quotient))
		}
	}
	for k, values := range add {
		s[k] = values
	}
}

// middle returns the median.
func middle(values []float64) float64 {
	n := len(values)
	v := slices.Sorted(slices.Values(values))
	return (v[(n-1)/2] + v[n/2]) / 2
}

// pairwise returns f of the values of each round.
func pairwise(a, b []float64, f func(a, b float64) float64) (values []float64) {
	for i := range min(len(a), len(b)) {
		values = append(values, f(a[i], b[i]))
	}
	return values
}

func quotient(a, b float64) float64 { return a / b }
