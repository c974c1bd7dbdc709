// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"charm.land/bubbles/v2/key"

	"github.com/vramprof/vramprof/report/format"
)

var helpGroups = []struct {
	title string
	keys  []key.Binding
}{
	{"Views", []key.Binding{
		bind("1 2 3 4", "GPUs, processes, lines of code, timeline"), bind("Tab Shift-Tab", "the next view, the one before"),
		bind("Enter", "open: the lines of a process, the stack of a line"), bind("Esc", "back: closes what Enter opened, clears the filter"),
	}},
	{"Moving", []key.Binding{
		bind("↑ ↓ k j", "up and down"), bind("PgUp PgDn", "a page"), bind("Home End g G", "the first and the last row"),
		bind("← → h l", "fold and unfold a branch of the tree"), bind("n p", "the next stack of a line, the one before"),
	}},
	{"Rows", []key.Binding{
		bind("/", "filter by a regular expression: command, pid, user, file, function"), bind("< >", "sort by another column"), bind("r", "reverse the order"),
		bind("t", "lines as a tree or as a list"), bind("m", "merge processes: one row for the same line in all"),
	}},
	{"Session", []key.Binding{
		bind("Space", "freeze the display; tracing goes on"), bind("w", "write a profile of the moment that is shown"), bind("s", "keep a capture of the session; again: end it"),
		bind("d", "doubts about the figures, remarks, and advice"), bind("q Ctrl-C", "quit"),
	}},
}

var helpTexts = []string{
	"live, own and total are of the instant since the last redraw at which the process had most: tensors where PyTorch reports them, else allocations. A step of training comes and goes between two redraws. Each process has its own instant. count, growth and oldest are of now. The timeline shows the same.",
	"live: memory on the GPU, as NVML counts it. It is the sum of tensors, cache (kept by PyTorch's allocator), other CUDA (allocated from CUDA by other code), rounding (by the driver), before (from before the attach, with the CUDA context) and unexplained. Host, managed, system (malloc's, on a superchip's GPU) and asleep are in no GPU's sum; nor is what the books have beyond NVML's figure, after + in view 1. peak: the highest of NVML's readings, of what was on this screen, and of what the process had at the peaks of its tensors and allocations.",
	"growth/min: of processes and GPUs, in the last minute; of lines, in the later half of the session, at most the last hour. full in: at the growth of the last minute.",
	"own: allocated by the line itself; total: by all stacks through it. ≈: events were lost, or stacks are missing.",
	"verdict: ! leaking, + growing; one-off, steady and cache are harmless. Enter on a line shows the evidence.",
}

// helpPage is what the keys do, and what the figures mean.
type helpPage struct{}

func (helpPage) keys() []key.Binding {
	return []key.Binding{bind("any key", "back"), bind("↑↓", "scroll"), bind("Ctrl-C", "quit")}
}

func (helpPage) lines(x *scene) []string {
	width := x.size.width
	var list []string
	for _, g := range helpGroups {
		list = append(list, x.p.paint(bold, format.Cut(g.title, width)))
		for _, k := range g.keys {
			h := k.Help()
			list = append(list, wrap("  "+format.Pad(h.Key, 14)+" ", h.Desc, width)...)
		}
		list = append(list, "")
	}
	list = append(append(list, x.p.legend(nil, width)...), "")
	for _, text := range helpTexts {
		list = append(list, wrap("", text, width)...)
		list = append(list, "")
	}
	return list
}
