// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
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

// lost returns how much longer a pair of calls takes with a tool than without, in ns, for each
// round.
func (r *results) lost(tool, program string) []float64 {
	return pairwise(r.get("calls", tool, program, "ns_per_pair"), r.get("calls", "none", program, "ns_per_pair"), difference)
}

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
	if r.get("calls", "none", programs[0].name, "ns_per_pair") == nil {
		return notMeasured
	}
	head := []string{"program", "alone"}
	for _, t := range tools {
		head = append(head, t.title)
	}
	var rows [][]string
	for _, p := range programs {
		cells := []string{p.title, whole(middle(r.get("calls", "none", p.name, "ns_per_pair")))}
		for _, t := range tools {
			tool := t.name
			if tool == "bpftrace" {
				tool = bpftraceOf(p.name)
			}
			cells = append(cells, spread(r.lost(tool, p.name), whole))
		}
		rows = append(rows, cells)
	}
	return table(head, rows)
}

// ratios returns the ratios of the losses of each round.
func (r *results) ratios() string {
	if r.get("calls", "none", "c_cuda", "ns_per_pair") == nil {
		return notMeasured
	}
	var rows [][]string
	for _, p := range plainPrograms {
		mine := r.lost("vramprof", p.name)
		rows = append(rows, []string{p.title,
			spread(pairwise(mine, r.lost("floor", p.name), quotient), fixed(2)),
			spread(pairwise(r.lost(bpftraceOf(p.name), p.name), mine, quotient), fixed(2))})
	}
	for _, p := range namedPrograms {
		mine := r.lost("vramprof", p.name)
		rows = append(rows, []string{p.title + ", renamed `cudaMalloc`",
			spread(pairwise(mine, r.lost("floor", p.name), quotient), fixed(2)),
			spread(pairwise(r.lost("memleak", p.name), mine, quotient), fixed(2)) + " (memleak)"})
	}
	return table([]string{"program", "vramprof to empty probes", "bpftrace to vramprof"}, rows)
}

var bookTools = []row{{"vramprof", "vramprof"}, {"vramprof-capture", "vramprof and a capture"}, {"bpftrace-cudart", "bpftrace"}, {"memleak", "memleak"}}

// books returns the table that compares each tool's results with the truth.
func (r *results) books(load string) string {
	if r.get("books", "vramprof", load, "allocations") == nil {
		return notMeasured
	}
	head := []string{"tool", "allocations a second", "counted of 1,000,000", "live bytes reported of 1,000,000", "reported as lost",
		"CPU, of one core", "CPU from start to end", "memory", "BPF maps", "written", "Ctrl-C to the end"}
	var rows [][]string
	for _, t := range bookTools {
		get := func(figure string) []float64 { return r.get("books", t.name, load, figure) }
		if get("allocations") == nil {
			continue
		}
		rate := pairwise(get("allocations"), get("wall_s"), quotient)
		share := func(said, true string) string {
			if get(said) == nil {
				return "not reported"
			}
			return spread(pairwise(get(said), get(true), func(a, b float64) float64 { return 1e6 * a / b }), whole)
		}
		lost := "not reported"
		if get("said_lost") != nil {
			lost = spread(get("said_lost"), whole)
		}
		rows = append(rows, []string{t.title, spread(rate, whole), share("said_allocations", "allocations"), share("said_live_bytes", "live_bytes"), lost,
			spread(pairwise(get("cpu_s"), get("wall_s"), quotient), percent), fixed(2)(middle(get("cpu_total_s"))) + " s",
			megabytes(middle(get("rss_bytes"))), megabytes(middle(get("maps_bytes"))), bytes(middle(get("disk_bytes"))), fixed(1)(middle(get("end_s"))) + " s"})
	}
	return table(head, rows)
}

// ready returns the table of the time from a tool's start to the first allocation in its results,
// with the share of whole stacks.
func (r *results) ready() string {
	if r.get("books", "vramprof", "py", "stacks") == nil {
		return notMeasured
	}
	var rows [][]string
	for _, t := range bookTools {
		for _, l := range []row{{"c", "C without frame pointers"}, {"fp", "C with frame pointers"}, {"py", "Python"}} {
			get := func(figure string) []float64 { return r.get("books", t.name, l.name, figure) }
			if get("stacks") == nil {
				continue
			}
			share := func(figure string) string {
				if get(figure) == nil {
					return "–"
				}
				return percent(middle(get(figure)))
			}
			python := "–"
			if l.name == "py" {
				python = share("python_share")
			}
			rows = append(rows, []string{t.title, l.title, spread(get("ready_s"), fixed(2)), whole(middle(get("stacks"))), share("whole_share"), python})
		}
	}
	return table([]string{"tool", "program", "seconds to the first allocation", "stacks, of 11", "whole stacks", "with Python's functions"}, rows)
}

var torchTools = []row{{"none", "alone"}, {"floor", "empty probe"}, {"vramprof", "vramprof"}, {"vramprof-every", "every tensor's stack"},
	{"vramprof-capture", "and a capture"}, {"vramprof-segments", "no tensors"}, {"bpftrace", "bpftrace, each tensor"},
	{"pytorch-python", "PyTorch's recorder, Python stacks"}, {"pytorch-all", "PyTorch's recorder, C++ stacks too"}}

// torch returns the table of step times, or the "books" of the same training.
func (r *results) torch(kind string) string {
	if r.get("torch", "none", "launch", "step_ms") == nil {
		return notMeasured
	}
	if kind == "books" {
		return r.torchBooks()
	}
	var rows [][]string
	for _, t := range torchTools {
		cells := []string{t.title}
		for _, length := range []string{"launch", "busy"} {
			step, alone := r.get("torch", t.name, length, "step_ms"), r.get("torch", "none", length, "step_ms")
			cells = append(cells, spread(step, fixed(2)), spread(pairwise(step, alone, quotient), fixed(2)))
		}
		if r.get("torch", t.name, "launch", "step_ms") != nil {
			rows = append(rows, cells)
		}
	}
	return table([]string{"", "launch-bound, ms a step", "to alone", "20 ms more a step, ms", "to alone"}, rows)
}

func (r *results) torchBooks() string {
	var rows [][]string
	for _, t := range torchTools[1:] {
		get := func(figure string) []float64 { return r.get("torch", t.name, "job", figure) }
		if get("allocations") == nil || get("end_s") == nil {
			continue
		}
		or := func(figure string, format func(float64) string) string {
			if get(figure) == nil {
				return "–"
			}
			return format(middle(get(figure)))
		}
		counted := "–"
		if said := get("said_allocations"); said != nil {
			counted = spread(pairwise(said, get("allocations"), func(a, b float64) float64 { return 1e6 * a / b }), whole)
		}
		cpu := "in the job"
		if get("cpu_s") != nil {
			cpu = spread(pairwise(get("cpu_s"), get("wall_s"), quotient), percent)
		}
		rows = append(rows, []string{t.title, counted, or("said_lost", whole), or("whole_share", percent), or("python_share", percent), cpu,
			or("rss_bytes", megabytes), or("maps_bytes", megabytes), or("disk_bytes", bytes),
			or("attach_s", func(v float64) string { return fixed(2)(v) + " s" }), or("end_s", func(v float64) string { return fixed(2)(v) + " s" })})
	}
	return table([]string{"", "tensors counted of 1,000,000", "reported as lost", "stacks whole", "with Python's functions", "CPU, of one core",
		"memory", "BPF maps", "written", "start until attached", "end until written"}, rows)
}

// heap returns the table of malloc profilers on malloc.
func (r *results) heap() string {
	if r.get("heap", "none", "fp_libc", "ns_per_pair") == nil {
		return notMeasured
	}
	tools := []row{{"memleak", "memleak"}, {"heaptrack", "heaptrack"}, {"memray", "memray"}}
	var rows [][]string
	for _, p := range heapPrograms {
		alone := r.get("heap", "none", p.name, "ns_per_pair")
		cells := []string{p.title, whole(middle(alone))}
		for _, t := range tools {
			cells = append(cells, spread(pairwise(r.get("heap", t.name, p.name, "ns_per_pair"), alone, difference), whole))
		}
		rows = append(rows, cells)
	}
	return table([]string{"program", "alone", "memleak", "heaptrack", "memray"}, rows)
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
	first := r.abouts[r.names[0]]
	for _, word := range []string{"machine", "kernel", "mitigations", "versions"} {
		if first[word] != "" {
			fmt.Fprintf(&out, "- %s: %s\n", word, first[word])
		}
	}
	var rows [][]string
	for _, name := range r.names {
		a := r.abouts[name]
		rows = append(rows, []string{name, a["date"], a["vramprof"], a["load"], a["rounds"], a["seconds"]})
	}
	return out.String() + "\n" + table([]string{"measured", "date", "vramprof", "load before", "rounds", "took, s"}, rows)
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
			fmt.Fprintf(&out, "%s: not measured.\n\n", name)
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
	return strings.TrimSpace(out.String())
}
