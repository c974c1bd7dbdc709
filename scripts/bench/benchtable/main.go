// SPDX-License-Identifier: Apache-2.0

// Benchtable writes BENCHMARKS.md, its pictures and scripts/bench/results/README.md from results of
// scripts/bench.sh. Each kind of result has its own files, so it can be measured again alone.
//
//	benchtable page REPOSITORY          writes them from scripts/bench/results
//	benchtable print TEMPLATE FOLDER    prints the tables of a folder of results
//	benchtable figures SAMPLES          prints the figures of NAME.samples
//
//	FOLDER/NAME.samples   output of package peers: one line for each value of each round
//	FOLDER/NAME.figures   what the samples come to: table, tool, program, figure, median, lowest, highest
//	FOLDER/NAME.rows      the budget: "section TEXT", or "row", what, target, measured, ratio, met; tab-separated
//	FOLDER/NAME.about     "WORD TEXT": machine, kernel, date, load, versions, rounds
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "page":
		files, err := page(args[1])
		if err != nil {
			return err
		}
		return files.write(args[1])
	case len(args) == 3 && args[0] == "print":
		r, err := readResults(args[2])
		if err != nil {
			return err
		}
		return r.execute(os.Stdout, args[1])
	case len(args) == 2 && args[0] == "figures":
		r := &results{}
		if err := r.readSamples(args[1]); err != nil {
			return err
		}
		return r.writeFigures(os.Stdout)
	}
	return fmt.Errorf("usage: benchtable page REPOSITORY | print TEMPLATE FOLDER | figures SAMPLES")
}

// files holds the text of generated files by their path in the repository.
type files map[string]string

// pages are the generated pages with their templates in scripts/bench.
var pages = map[string]string{
	"BENCHMARKS.md":                   "BENCHMARKS.md.tmpl",
	"scripts/bench/results/README.md": "results.md.tmpl",
}

// page returns the pages and their pictures.
func page(repository string) (files, error) {
	folder := filepath.Join(repository, "scripts/bench")
	r, err := readResults(filepath.Join(folder, "results"))
	if err != nil {
		return nil, err
	}
	all := files{
		"docs/benchmarks/cost.svg": r.costPicture(),
		"docs/benchmarks/step.svg": r.stepPicture(),
		"docs/benchmarks/sees.svg": r.seesPicture(),
	}
	for name, template := range pages {
		var text strings.Builder
		if err := r.execute(&text, filepath.Join(folder, template)); err != nil {
			return nil, err
		}
		all[name] = text.String()
	}
	return all, nil
}

func (f files) write(repository string) error {
	for name, text := range f {
		path := filepath.Join(repository, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// execute writes a template with the tables of the results.
func (r *results) execute(w io.Writer, file string) error {
	functions := template.FuncMap{
		"about": r.about, "calls": r.calls, "ratios": r.ratios, "tails": r.tails, "books": r.books, "ready": r.ready,
		"torch": r.torch, "heap": r.heap, "missing": r.missingList, "budget": r.budget, "missed": r.missed, "quick": r.quick,
		"median": r.median, "value": r.value, "outcome": r.outcome, "budgetSummary": r.budgetSummary, "conditions": r.conditions,
	}
	t, err := template.New(filepath.Base(file)).Funcs(functions).ParseFiles(file)
	if err != nil {
		return err
	}
	return t.Execute(w, nil)
}
