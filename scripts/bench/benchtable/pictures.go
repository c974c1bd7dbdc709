// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// class returns the color of a tool's bar.
func class(tool string) string {
	switch tool {
	case "vramprof", "vramprof-every":
		return "mine"
	case "none", "floor":
		return "floor"
	}
	return "other"
}

// costPicture shows what a pair of calls costs with each tool.
func (r *results) costPicture() string {
	var s svg
	s.title("What a call costs", "Time that a thread loses to an allocation and its free, 30 frames deep. Each group has its own scale. Thin lines: rounds.")
	for _, p := range []row{{"c_cuda", "cuMemAlloc_v2 of the driver, from C"}, {"py_cuda", "cuMemAlloc_v2 of the driver, from Python"},
		{"c_cudart", "cudaMalloc of the runtime, from C"}, {"py_cudart", "cudaMalloc of the runtime, from Python"}, {"fp_named", "cudaMalloc renamed to posix_memalign, which memleak needs"}} {
		var bars []bar
		for _, t := range []row{{"floor", "empty probes"}, {"vramprof", "vramprof"}, {"bpftrace", "bpftrace"}, {"memleak", "memleak"}} {
			f, ok := r.figures[key{"calls", toolOf(t.name, p.name), p.name, "lost"}]
			if ok {
				bars = append(bars, bar{class(t.name), t.title, fixed(1)(f.median/1000) + " µs", f})
			}
		}
		if len(bars) > 0 {
			s.panel(p.title, bars)
		}
	}
	return s.file("Bars: microseconds that each tool adds to an allocation and its free")
}

// stepPicture shows how long a training step takes under each tool.
func (r *results) stepPicture() string {
	var s svg
	s.title("What a training step of PyTorch costs", "441 tensors a step. Each group has its own scale. Thin lines: lowest and highest round.")
	for _, length := range []row{{"launch", "The simulated GPU computes nothing: the worst case"}, {"busy", "The GPU works 20 ms a step"}} {
		var bars []bar
		for _, t := range torchTools {
			step, ok := r.figures[key{"torch", t.name, length.name, "step_ms"}]
			if !ok || stepTitles[t.name] == "" {
				continue
			}
			ratio := r.figures[key{"torch", t.name, length.name, "to_alone"}]
			value := fixed(1)(step.median) + " ms"
			if t.name != "none" {
				value += fmt.Sprintf(" (× %.2f)", ratio.median)
			}
			bars = append(bars, bar{class(t.name), stepTitles[t.name], value, step})
		}
		if len(bars) > 0 {
			s.panel(length.title, bars)
		}
	}
	return s.file("Bars: milliseconds of a training step alone and under each tool")
}

var stepTitles = map[string]string{"none": "alone", "floor": "empty probe", "vramprof": "vramprof, a sample of stacks", "vramprof-every": "vramprof, every stack",
	"bpftrace": "bpftrace, every tensor", "pytorch-python": "PyTorch's recorder, Python", "pytorch-all": "… with C++ stacks"}

// sight is what a tool sees of something: all, a part or nothing.
type sight struct {
	sees byte // 'y', 'p' or 'n'
	text string
}

// seesPicture shows what each tool sees. Cells that a run measured have its figure.
func (r *results) seesPicture() string {
	var s svg
	s.title("What each tool sees", "Filled: yes. Half: in part. Ring: no. Percentages are measured.")
	tools := []string{"vramprof", "bpftrace script", "bcc memleak", "PyTorch's recorder"}
	const left, column = 238.0, 134.0
	s.y += 24
	for i, t := range tools {
		s.text("panel", "start", left+float64(i)*column, s.y, t)
	}
	s.y += 10
	for _, line := range r.sights() {
		s.line("line", 16, s.y, pictureWidth-16, s.y)
		s.text("", "start", 16, s.y+20, line.what)
		for i, cell := range line.cells {
			x := left + float64(i)*column
			tool := "other"
			if i == 0 {
				tool = "mine"
			}
			s.dot(tool, cell.sees, x+7, s.y+15.5)
			s.text("quiet", "start", x+20, s.y+20, cell.text)
		}
		s.y += 31
	}
	return s.file("Table: what vramprof, a bpftrace script, bcc's memleak and PyTorch's recorder see")
}

func (s *svg) dot(class string, sees byte, x, y float64) {
	switch sees {
	case 'y':
		fmt.Fprintf(&s.body, "<circle class=%q cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>\n", class, x, y)
	case 'p':
		fmt.Fprintf(&s.body, "<path class=%q d=\"M%.1f %.1fa6 6 0 0 0 0 12z\"/>\n<circle class=\"half\" cx=\"%.1f\" cy=\"%.1f\" r=\"5.5\"/>\n", class, x, y-6, x, y)
	default:
		fmt.Fprintf(&s.body, "<circle class=\"ring\" cx=\"%.1f\" cy=\"%.1f\" r=\"5\"/>\n", x, y)
	}
}

type sightLine struct {
	what  string
	cells [4]sight
}

func (r *results) sights() []sightLine {
	yes, no := sight{'y', ""}, sight{'n', ""}
	stacks := func(tool, program, name string) sight {
		f := r.figures[key{"books", tool, program, name}]
		c := sight{'p', fixed(0)(f.median*100) + " %"}
		if f.median > 0.995 {
			c.sees = 'y'
		} else if f.median == 0 {
			c.sees = 'n'
		}
		return c
	}
	counted := func(table, tool, program, name string) sight {
		f := r.figures[key{table, tool, program, name}]
		c := sight{'p', fixed(0)(f.median/1e4) + " %"}
		if f.low >= 1e6 && f.high <= 1e6 {
			c.sees = 'y'
		}
		return c
	}
	return []sightLine{
		{"A running job, unchanged", [4]sight{yes, yes, yes, {'n', "a line of code"}}},
		{"Driver and runtime at once", [4]sight{yes, {'n', "one of them"}, {'n', "needs renaming"}, {'n', "own allocator"}}},
		{"Live bytes, 50,000 pairs/s", [4]sight{counted("books", "vramprof", "rate", "of_million_live_bytes"), counted("books", "bpftrace-cudart", "rate", "of_million_live_bytes"),
			counted("books", "memleak", "rate", "of_million_live_bytes"), {'n', "own allocator"}}},
		{"Tensors of PyTorch", [4]sight{counted("torch", "vramprof", "job", "of_million_allocations"), {'p', "of one version"}, no,
			counted("torch", "pytorch-python", "job", "of_million_allocations")}},
		{"Whole stacks, no frame pointers", [4]sight{stacks("vramprof", "c", "whole_share"), stacks("bpftrace-cudart", "c", "whole_share"), stacks("memleak", "c", "whole_share"), {'y', "as an option"}}},
		{"Python functions", [4]sight{stacks("vramprof", "py", "python_share"), stacks("bpftrace-cudart", "py", "python_share"), stacks("memleak", "py", "python_share"), yes}},
		{"Who keeps the memory", [4]sight{{'p', "CPython, PyTorch"}, no, no, no}},
		{"Memory before the attach", [4]sight{{'p', "sum; tensors"}, no, no, no}},
		{"Counts its own losses", [4]sight{yes, no, no, no}},
		{"Without root or capabilities", [4]sight{no, no, no, yes}},
	}
}
