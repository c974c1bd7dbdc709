// SPDX-License-Identifier: Apache-2.0

// Benchtable writes BENCHMARKS.md from a template and a folder of results from scripts/bench.sh.
// Each kind of result has its own files, so it can be measured again alone.
//
//	benchtable TEMPLATE FOLDER > BENCHMARKS.md
//
//	FOLDER/NAME.samples   output of package peers
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
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: benchtable TEMPLATE FOLDER")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, file, folder string) error {
	r, err := readResults(folder)
	if err != nil {
		return err
	}
	functions := template.FuncMap{
		"about": r.about, "calls": r.calls, "ratios": r.ratios, "books": r.books, "ready": r.ready,
		"torch": r.torch, "heap": r.heap, "missing": r.missingList, "budget": r.budget, "quick": r.quick,
	}
	t, err := template.New(filepath.Base(file)).Funcs(functions).ParseFiles(file)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := t.Execute(&text, nil); err != nil {
		return err
	}
	_, err = io.WriteString(w, text.String())
	return err
}
