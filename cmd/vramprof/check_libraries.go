// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/probes"
)

// writeLibraries lists, for each CUDA library of this machine, which rows of the probe table it
// has.
func writeLibraries(w io.Writer, columns int) error {
	list, more, err := probes.Libraries()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		fmt.Fprint(w, "\nNo process maps a CUDA library, and no driver was found.\n")
	}
	const indent = 4
	line := func(text string) {
		fmt.Fprintf(w, "%*s%s\n", indent, "", hanging(untrusted.Clean(text), columns, indent))
	}
	for _, l := range list {
		fmt.Fprintf(w, "\n%s\n", hanging(untrusted.Clean(l.Name+" ("+mappedBy(l.PIDs)+")"), columns, indent))
		layer := "runtime"
		if l.Layer == functions.Driver {
			layer = "driver"
		}
		total := len(l.Rows.Found) + len(l.Rows.Missing)
		switch {
		case l.Err != nil:
			line("cannot be traced: " + l.Err.Error())
			continue
		case l.Program: // a linker includes only used functions
			line(fmt.Sprintf("holds %d of the %d traced %s functions itself", len(l.Rows.Found), total, layer))
			continue
		case len(l.Rows.Found) == 0:
			line(fmt.Sprintf("none of %d traced %s functions", total, layer))
			continue
		}
		line(fmt.Sprintf("%d of %d traced %s functions", len(l.Rows.Found), total, layer))
		if len(l.Rows.Missing) > 0 {
			line("not in this file: " + strings.Join(l.Rows.Missing, ", "))
		}
	}
	if more > 0 {
		fmt.Fprintf(w, "\n%d more files are not shown.\n", more)
	}
	return nil
}

// mappedBy names a few processes: "processes 12, 14, 15 and 3 more".
func mappedBy(pids []uint32) string {
	const named = 3
	switch len(pids) {
	case 0:
		return "no process"
	case 1:
		return fmt.Sprintf("process %d", pids[0])
	}
	var names []string
	for _, pid := range pids[:min(named, len(pids))] {
		names = append(names, fmt.Sprint(pid))
	}
	text := "processes " + strings.Join(names, ", ")
	if more := len(pids) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
