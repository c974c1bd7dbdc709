// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/vramprof/vramprof/internal/terminal"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/probes"
)

// libraryReports lists, for each CUDA library of this machine, which rows of the probe table it has
// and where their probes go.
func libraryReports() (*reportjson.LibrariesReport, error) {
	list, more, err := probes.Libraries()
	if err != nil {
		return nil, err
	}
	r := &reportjson.LibrariesReport{Version: reportjson.LibrariesVersion, Libraries: []reportjson.LibraryReport{}, More: more}
	for _, l := range list {
		x := reportjson.LibraryReport{
			Name: untrusted.Clean(l.Name), Layer: "runtime", Program: l.Program, PIDs: append([]uint32{}, l.PIDs...),
			Functions: []reportjson.ProbeReport{}, Missing: append([]string{}, l.Rows.Missing...),
		}
		if l.Layer == cudaapi.Driver {
			x.Layer = "driver"
		}
		if l.Err != nil {
			x.Error = untrusted.Clean(l.Err.Error())
		}
		for i, at := range l.Rows.Found {
			x.Functions = append(x.Functions, reportjson.ProbeReport{
				Function: at.Name, Offset: at.Probe - at.Offset, Emulated: at.Emulated, Shape: at.Shape, Code: fmt.Sprintf("%x", l.Code[i]),
			})
		}
		r.Libraries = append(r.Libraries, x)
	}
	return r, nil
}

// Libraries lists the CUDA libraries of this machine, and what the driver returns.
func Libraries(ctx context.Context, w io.Writer, asJSON bool, columns int) error {
	r, err := libraryReports()
	if err != nil {
		return err
	}
	r.Entries = askEntries(ctx)
	if asJSON {
		return reportjson.WriteLibraries(w, r)
	}
	writeLibraries(w, r, columns, true)
	name := r.Entries.Library
	if name == "" {
		name = "libcuda.so.1"
	}
	fmt.Fprintf(w, "\n%s\n", terminal.Hanging(name+" as this process loads it", columns, libraryIndent))
	for _, text := range entriesText(&r.Entries) {
		libraryLine(w, text, columns)
	}
	return nil
}

const libraryIndent = 4

func libraryLine(w io.Writer, text string, columns int) {
	fmt.Fprintf(w, "%*s%s\n", libraryIndent, "", terminal.Hanging(text, columns, libraryIndent))
}

// writeLibraries writes a paragraph for each library, with a table of its probes if asked for.
func writeLibraries(w io.Writer, r *reportjson.LibrariesReport, columns int, probes bool) {
	if len(r.Libraries) == 0 {
		fmt.Fprint(w, "\nNo process maps a CUDA library, and no driver was found.\n")
	}
	for i := range r.Libraries {
		l := &r.Libraries[i]
		fmt.Fprintf(w, "\n%s\n", terminal.Hanging(l.Name+" ("+mappedBy(l.PIDs)+")", columns, libraryIndent))
		for _, text := range libraryTexts(l) {
			libraryLine(w, text, columns)
		}
		if probes && len(l.Functions) > 0 {
			writeProbes(w, l.Functions, columns)
		}
	}
	if r.More > 0 {
		fmt.Fprintf(w, "\n%d more files are not shown.\n", r.More)
	}
}

func libraryTexts(l *reportjson.LibraryReport) []string {
	total := len(l.Functions) + len(l.Missing)
	switch {
	case l.Error != "":
		return []string{"cannot be traced: " + l.Error}
	case l.Program: // a linker includes only used functions
		return []string{fmt.Sprintf("holds %d of the %d traced %s functions itself", len(l.Functions), total, l.Layer)}
	case len(l.Functions) == 0:
		return []string{fmt.Sprintf("none of %d traced %s functions", total, l.Layer)}
	}
	list := []string{fmt.Sprintf("%d of %d traced %s functions", len(l.Functions), total, l.Layer)}
	if len(l.Missing) > 0 {
		list = append(list, "not in this file: "+strings.Join(l.Missing, ", "))
	}
	return list
}

// writeProbes writes a table of functions: where the probe goes, the instructions up to it, how the
// kernel runs the last of them, and the first bytes. Cells that do not fit go on a second line.
func writeProbes(w io.Writer, list []reportjson.ProbeReport, columns int) {
	head := [...]string{"function", "probe", "instructions", "kernel", "first bytes"}
	rows := [][len(head)]string{head}
	for _, f := range list {
		how := "steps"
		if f.Emulated {
			how = "emulates"
		}
		rows = append(rows, [len(head)]string{f.Function, fmt.Sprintf("+%d", f.Offset), f.Shape, how, f.Code})
	}
	var wide [len(head)]int
	for _, row := range rows {
		for i, cell := range row {
			wide[i] = max(wide[i], len(cell))
		}
	}
	indent := max(min(libraryIndent, columns-wide[0]), 0) // a name is one word
	cut := 0                                              // columns of a first line
	for room := columns - indent; cut < len(head); cut++ {
		if room -= wide[cut]; room < 0 {
			break
		}
		room -= len("  ")
	}
	cut = max(cut, 1)
	fmt.Fprintln(w)
	for _, row := range rows {
		var line string
		for i, cell := range row[:cut] {
			line += format.Pad(cell, wide[i]+len("  "))
		}
		fmt.Fprintf(w, "%*s%s\n", indent, "", strings.TrimRight(line, " "))
		if rest := strings.Join(row[cut:], "  "); rest != "" {
			fmt.Fprintf(w, "%*s%s\n", indent+2, "", terminal.Hanging(rest, columns, indent+2))
		}
	}
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
