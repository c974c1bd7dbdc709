// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// row is a tool or a program in a table: its name in the samples and its title.
type row struct{ name, title string }

var plainPrograms = []row{
	{"c_cuda", "C, `cuMemAlloc_v2`"}, {"fp_cuda", "C with frame pointers, `cuMemAlloc_v2`"}, {"p64_cuda", "C, `cuMemAlloc_v2`, 64 paths"},
	{"py_cuda", "Python, `cuMemAlloc_v2`"}, {"py64_cuda", "Python, `cuMemAlloc_v2`, 64 paths"},
	{"c_cudart", "C, `cudaMalloc`"}, {"fp_cudart", "C with frame pointers, `cudaMalloc`"}, {"p64_cudart", "C, `cudaMalloc`, 64 paths"},
	{"py_cudart", "Python, `cudaMalloc`"}, {"py64_cudart", "Python, `cudaMalloc`, 64 paths"},
}

var namedPrograms = []row{
	{"fp_named", "C with frame pointers"}, {"fp64_named", "C with frame pointers, 64 paths"}, {"py_named", "Python"},
}

var heapPrograms = []row{
	{"fp_libc", "C with frame pointers"}, {"fp64_libc", "C with frame pointers, 64 paths"}, {"py_libc", "Python"},
}

const notMeasured = "Not measured."

// bpftraceOf returns the name of the bpftrace script for the functions that a program calls.
func bpftraceOf(program string) string {
	_, lib, _ := strings.Cut(program, "_")
	return "bpftrace-" + lib
}

// calls returns the table of call costs: of "plain" programs, or of those "named" for memleak.
func (r *results) calls(kind string) string {
	programs, tools := plainPrograms, []row{{"floor", "empty probes"}, {"vramprof", "vramprof"}, {"vramprof-capture", "and a capture"}, {"bpftrace", "bpftrace"}}
	if kind == "named" {
		programs, tools = namedPrograms, []row{{"floor", "empty probes"}, {"vramprof", "vramprof"}, {"memleak", "memleak"}}
	}
	if !r.has("calls", "none", programs[0].name, "ns_per_pair") {
		return notMeasured
	}
	head := []string{"program", "alone"}
	for _, t := range tools {
		head = append(head, t.title)
	}
	var rows [][]string
	for _, p := range programs {
		cells := []string{p.title, r.middle("calls", "none", p.name, "ns_per_pair", whole)}
		for _, t := range tools {
			cells = append(cells, r.spread("calls", toolOf(t.name, p.name), p.name, "lost", whole))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func toolOf(tool, program string) string {
	if tool == "bpftrace" {
		return bpftraceOf(program)
	}
	return tool
}

// ratios returns the ratios of the losses of each round.
func (r *results) ratios() string {
	if !r.has("calls", "none", "c_cuda", "ns_per_pair") {
		return notMeasured
	}
	var rows [][]string
	for _, p := range plainPrograms {
		rows = append(rows, []string{p.title, r.spread("calls", "vramprof", p.name, "to_floor", fixed(2)),
			r.spread("calls", bpftraceOf(p.name), p.name, "to_vramprof", fixed(2))})
	}
	for _, p := range namedPrograms {
		rows = append(rows, []string{p.title + ", renamed `cudaMalloc`", r.spread("calls", "vramprof", p.name, "to_floor", fixed(2)),
			r.spread("calls", "memleak", p.name, "to_vramprof", fixed(2)) + " (memleak)"})
	}
	return table([]string{"program", "vramprof to empty probes", "bpftrace to vramprof"}, rows)
}

// tails returns the table of the slowest pairs of the C programs, which time them one by one, or ""
// for results from before they did.
func (r *results) tails() string {
	if !r.has("calls", "none", "c_cuda", "pair_p999") {
		return ""
	}
	tools := []row{{"none", "alone"}, {"floor", "empty probes"}, {"vramprof", "vramprof"}, {"vramprof-capture", "and a capture"}, {"bpftrace", "bpftrace"}}
	head := []string{"program"}
	for _, t := range tools {
		head = append(head, t.title)
	}
	var rows [][]string
	for _, p := range plainPrograms {
		if !r.has("calls", "none", p.name, "pair_p999") {
			continue
		}
		cells := []string{p.title}
		for _, t := range tools {
			tool := toolOf(t.name, p.name)
			cells = append(cells, r.middle("calls", tool, p.name, "pair_p50", whole)+" / "+r.spread("calls", tool, p.name, "pair_p999", whole))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

var bookTools = []row{{"vramprof", "vramprof"}, {"vramprof-capture", "vramprof and a capture"}, {"bpftrace-cudart", "bpftrace"}, {"memleak", "memleak"}}

// books returns the table that compares each tool's results with the truth.
func (r *results) books(load string) string {
	if !r.has("books", "vramprof", load, "rate") {
		return notMeasured
	}
	head := []string{"tool", "allocations a second", "counted of 1,000,000", "live bytes reported of 1,000,000", "reported as lost",
		"CPU, of one core", "CPU from start to end", "memory", "BPF maps", "written", "Ctrl-C to the end"}
	var rows [][]string
	for _, t := range bookTools {
		if !r.has("books", t.name, load, "rate") {
			continue
		}
		spread := func(name string, format func(float64) string) string {
			if !r.has("books", t.name, load, name) {
				return "not reported"
			}
			return r.spread("books", t.name, load, name, format)
		}
		middle := func(name string, format func(float64) string) string {
			return r.middle("books", t.name, load, name, format)
		}
		rows = append(rows, []string{t.title, spread("rate", whole), spread("of_million_allocations", whole), spread("of_million_live_bytes", whole), spread("said_lost", whole),
			spread("cpu", percent), middle("cpu_total_s", seconds(2)), middle("rss_bytes", megabytes), middle("maps_bytes", megabytes),
			middle("disk_bytes", bytes), middle("end_s", seconds(1))})
	}
	return table(head, rows)
}

// ready returns the table of the time from a tool's start to the first allocation in its results,
// with the share of whole stacks.
func (r *results) ready() string {
	if !r.has("books", "vramprof", "py", "stacks") {
		return notMeasured
	}
	var rows [][]string
	for _, t := range bookTools {
		for _, l := range []row{{"c", "C without frame pointers"}, {"fp", "C with frame pointers"}, {"py", "Python"}} {
			if !r.has("books", t.name, l.name, "stacks") {
				continue
			}
			python := "–"
			if l.name == "py" {
				python = r.middle("books", t.name, l.name, "python_share", percent)
			}
			rows = append(rows, []string{t.title, l.title, r.spread("books", t.name, l.name, "ready_s", fixed(2)), r.middle("books", t.name, l.name, "stacks", whole),
				r.middle("books", t.name, l.name, "whole_share", percent), python})
		}
	}
	return table([]string{"tool", "program", "seconds to the first allocation", "stacks, of 11", "whole stacks", "with Python's functions"}, rows)
}

var torchTools = []row{{"none", "alone"}, {"floor", "empty probe"}, {"vramprof", "vramprof"}, {"vramprof-every", "every tensor's stack"},
	{"vramprof-capture", "and a capture"}, {"vramprof-noholders", "without holders"}, {"vramprof-segments", "no tensors"}, {"bpftrace", "bpftrace, each tensor"},
	{"pytorch-python", "PyTorch's recorder, Python stacks"}, {"pytorch-all", "PyTorch's recorder, C++ stacks too"}}

// torch returns the table of step times, or the "books" of the same training.
func (r *results) torch(kind string) string {
	if !r.has("torch", "none", "launch", "step_ms") {
		return notMeasured
	}
	if kind == "books" {
		return r.torchBooks()
	}
	var rows [][]string
	for _, t := range torchTools {
		if !r.has("torch", t.name, "launch", "step_ms") {
			continue
		}
		cells := []string{t.title}
		for _, length := range []string{"launch", "busy"} {
			cells = append(cells, r.spread("torch", t.name, length, "step_ms", fixed(2)), r.spread("torch", t.name, length, "to_alone", fixed(2)))
		}
		rows = append(rows, cells)
	}
	return table([]string{"", "launch-bound, ms a step", "to alone", "20 ms more a step, ms", "to alone"}, rows)
}

func (r *results) torchBooks() string {
	var rows [][]string
	for _, t := range torchTools[1:] {
		if !r.has("torch", t.name, "job", "end_s") {
			continue
		}
		middle := func(name string, format func(float64) string) string {
			return r.middle("torch", t.name, "job", name, format)
		}
		cpu := "in the job"
		if r.has("torch", t.name, "job", "cpu") {
			cpu = r.spread("torch", t.name, "job", "cpu", percent)
		}
		rows = append(rows, []string{t.title, r.spread("torch", t.name, "job", "of_million_allocations", whole), middle("said_lost", whole), middle("whole_share", percent),
			middle("python_share", percent), cpu, middle("rss_bytes", megabytes), middle("maps_bytes", megabytes), middle("disk_bytes", bytes),
			middle("attach_s", seconds(2)), middle("end_s", seconds(2))})
	}
	return table([]string{"", "tensors counted of 1,000,000", "reported as lost", "stacks whole", "with Python's functions", "CPU, of one core",
		"memory", "BPF maps", "written", "start until attached", "end until written"}, rows)
}

// heap returns the table of malloc profilers on malloc.
func (r *results) heap() string {
	if !r.has("heap", "none", "fp_libc", "ns_per_pair") {
		return notMeasured
	}
	head := []string{"program", "alone"}
	var tools []string
	for _, tool := range []string{"memleak", "heaptrack", "memray"} {
		if r.has("heap", tool, "py_libc", "lost") {
			tools, head = append(tools, tool), append(head, tool)
		}
	}
	var rows [][]string
	for _, p := range heapPrograms {
		cells := []string{p.title, r.middle("heap", "none", p.name, "ns_per_pair", whole)}
		for _, tool := range tools {
			cells = append(cells, r.spread("heap", tool, p.name, "lost", whole))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

func (r *results) missingList() string {
	if len(r.missing) == 0 {
		return "All tools took part."
	}
	return "Did not take part:\n\n- " + strings.Join(r.missing, "\n- ")
}

// quick returns a warning if the figures are not to be quoted.
func (r *results) quick() string {
	var names []string
	for _, name := range r.names {
		if rounds := r.abouts[name]["rounds"]; rounds != "" && len(rounds) == 1 && rounds < "5" {
			names = append(names, fmt.Sprintf("%s (%s)", name, rounds))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "**Not figures to quote:** fewer than 5 rounds of " + strings.Join(names, ", ") + "; the machine was busy with other work if the load says so.\n"
}

// about returns when and where each kind of result was measured.
func (r *results) about() string {
	if len(r.names) == 0 {
		return notMeasured
	}
	var out strings.Builder
	var machines []string // each with a letter in the table
	var rows [][]string
	for _, name := range r.names {
		a := r.abouts[name]
		machine := strings.Join([]string{a["machine"], "Linux " + a["kernel"], a["versions"], a["mitigations"]}, "; ")
		if !slices.Contains(machines, machine) {
			machines = append(machines, machine)
		}
		letter := string(rune('A' + slices.Index(machines, machine)))
		rows = append(rows, []string{name, letter, a["date"], a["vramprof"], a["load"], a["rounds"], a["seconds"]})
	}
	for i, machine := range machines {
		fmt.Fprintf(&out, "- %c: %s\n", 'A'+i, machine)
	}
	return out.String() + "\n" + table([]string{"measured", "machine", "date", "vramprof", "load", "rounds", "took, s"}, rows)
}

// budget returns the rows of DESIGN.md's budget that bench.sh printed.
func (r *results) budget(names ...string) string {
	var out strings.Builder
	var rows [][]string
	flush := func() {
		if len(rows) > 0 {
			out.WriteString(table([]string{"", "target", "measured", "ratio", ""}, rows) + "\n\n")
		}
		rows = nil
	}
	for _, name := range names {
		lines, ok := r.rows[name]
		if !ok {
			fmt.Fprintf(&out, "%s: %s\n\n", name, notMeasured)
			continue
		}
		for _, line := range lines {
			cells := strings.Split(line, "\t")
			switch {
			case cells[0] == "section" && len(cells) == 2:
				flush()
				fmt.Fprintf(&out, "%s:\n\n", cells[1])
			case cells[0] == "row" && len(cells) == 6:
				rows = append(rows, cells[1:])
			case strings.HasPrefix(line, "|"): // already a table
				out.WriteString(line + "\n")
			case line != "":
				flush()
				out.WriteString(line + "\n\n")
			}
		}
		flush()
		out.WriteString("\n")
	}
	return strings.ReplaceAll(strings.TrimSpace(out.String()), "\n\n\n", "\n\n")
}

// median returns the median of a figure for a sentence: as "us" (of ns), "x" (a ratio), "ms", "s",
// "percent" or "MB".
func (r *results) median(table, tool, program, name, unit string) (string, error) {
	f, ok := r.figures[key{table, tool, program, name}]
	if !ok {
		return "", fmt.Errorf("no figure %s %s %s %s", table, tool, program, name)
	}
	switch unit {
	case "us":
		return fixed(1)(f.median / 1000), nil
	case "x":
		return fixed(2)(f.median), nil
	case "ms", "s":
		return fixed(1)(f.median), nil
	case "percent":
		return fixed(0)(f.median * 100), nil
	case "MB":
		return fixed(0)(f.median / 1e6), nil
	}
	return "", fmt.Errorf("no unit %q", unit)
}

// missed lists the rows of the budget that miss their target.
func (r *results) missed() string {
	var out strings.Builder
	for _, name := range r.names {
		section, parent := "", ""
		for _, line := range r.rows[name] {
			cells := strings.Split(line, "\t")
			if cells[0] == "section" {
				section, _, _ = strings.Cut(cells[1], ", medians")
				section, _, _ = strings.Cut(section, ":")
			}
			if cells[0] != "row" || len(cells) != 6 {
				continue
			}
			what := strings.TrimSpace(cells[1])
			if strings.HasPrefix(cells[1], "  ") {
				what = parent + ", " + what
			} else {
				parent, _, _ = strings.Cut(what, ", empty probes")
			}
			if strings.HasPrefix(cells[5], "missed") {
				fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", section, what, cells[2], cells[3], cells[4], strings.TrimPrefix(strings.TrimPrefix(cells[5], "missed"), ", "))
			}
		}
	}
	if out.Len() == 0 {
		return "All targets are met."
	}
	return "| measured | row | target | measured | ratio | |\n|---|---|---:|---:|---:|---|\n" + strings.TrimSuffix(out.String(), "\n")
}
