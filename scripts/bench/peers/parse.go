// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// answer is what a tool reports at its end.
type answer struct {
	allocs   uint64 // allocations that it counted
	counts   bool   // allocs includes freed allocations
	live     uint64 // bytes reported as live
	lost     uint64 // events reported as lost
	saysLost bool   // the tool can report lost events
	stacks   []held
}

// held is what one stack holds; 0 bytes if everything was freed.
type held struct {
	bytes  uint64
	frames []string // functions, innermost first
}

// The outermost functions of programs and threads: each whole stack contains one. A thread's is the
// C library's clone, which has no name without debug information.
var roots = []string{"main", "_start", "__libc_start_main", "__libc_start_call_main", "Py_BytesMain", "<module>",
	"start_thread", "clone", "clone3", "__clone3"}

// Some functions of the benchmark's Python programs.
var pythonFrames = []string{"<module>", "measure_paths", "run_thread", "step", "serve"}

// shares returns the shares of the stacks that reach the outermost function, and of those with the
// program's Python functions.
func (a answer) shares() (whole, python float64) {
	var wholes, pythons int
	contains := func(frames, names []string) bool {
		return slices.ContainsFunc(frames, func(f string) bool { return slices.Contains(names, f) })
	}
	for _, s := range a.stacks {
		if contains(s.frames, roots) || len(s.frames) > 0 && strings.HasPrefix(s.frames[len(s.frames)-1], "libc.so.6+0x") {
			wholes++
		}
		if contains(s.frames, pythonFrames) {
			pythons++
		}
	}
	all := float64(max(len(a.stacks), 1))
	return float64(wholes) / all, float64(pythons) / all
}

// parsePprof reads the text of "go tool pprof -raw":
//
//	Comment: 12 events were lost because buffers were full: …
//	Samples:
//	alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt] …
//	  750  3072000  750  3072000  0  0: 1 2 3
//	        api:[cudaMalloc] … plane:[driver]
//	Locations
//	     1: 0x2ee0 M=2 cudaMalloc :0:0 s=0
//
// plane is the one that the tool traces: driver or tensor.
func parsePprof(text, plane string) answer {
	a := answer{counts: true, saysLost: true}
	names := map[string][]string{} // by location: one name, and those that it is inlined into
	type sample struct {
		allocs, live uint64
		locations    []string
	}
	var samples []sample
	var last sample
	section, location := "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case line == "Samples:" || line == "Locations" || line == "Mappings":
			section = line
		case strings.HasPrefix(line, "Comment: "):
			a.lost += lostOf(line)
		case section == "Samples:":
			values, locations, ok := strings.Cut(line, ": ")
			if v := strings.Fields(values); ok && len(v) >= 4 && strings.Trim(values, " 0123456789") == "" {
				last = sample{allocs: number(v[0]), live: number(v[3]), locations: strings.Fields(locations)}
			} else if strings.Contains(line, "plane:["+plane+"]") {
				samples = append(samples, last)
			}
		case section == "Locations":
			if id, ok := strings.CutSuffix(words[0], ":"); ok && len(words) > 3 && strings.HasPrefix(words[1], "0x") {
				location = id
				words = words[3:]
			}
			names[location] = append(names[location], function(strings.Join(words, " ")))
		}
	}
	for _, s := range samples {
		a.allocs += s.allocs
		a.live += s.live
		h := held{bytes: s.live}
		for _, l := range s.locations {
			h.frames = append(h.frames, names[l]...)
		}
		if len(h.frames) > 1 { // not a total of blocks without a stack
			a.stacks = append(a.stacks, h)
		}
	}
	return a
}

// function returns "cudaMalloc" for "cudaMalloc :0:0 s=0" and for "cudaMalloc /a/b.c:12:0 s=3()".
func function(line string) string {
	name, _, _ := strings.Cut(line, " ")
	return name
}

var lostEvents = regexp.MustCompile(`([0-9,]+) events? (?:was|were) lost`)

func lostOf(line string) uint64 {
	if m := lostEvents.FindStringSubmatch(line); m != nil {
		return number(m[1])
	}
	return 0
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(strings.ReplaceAll(s, ",", ""), 10, 64)
	return n
}

// parseBpftrace parses the output of our scripts:
//
//	@allocs: 3010
//	@live[
//	    cudaMalloc+0
//	    main+1283
//	]: 4096
//
// A stack that holds nothing has 0. bpftrace reports lost prints as lost events.
func parseBpftrace(text string) answer {
	a := answer{counts: true}
	var frames []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "@allocs: "):
			a.allocs = number(line[len("@allocs: "):])
		case strings.HasPrefix(line, "Lost ") && strings.HasSuffix(line, " events"):
			a.saysLost = true
			a.lost += number(strings.Fields(line)[1])
		case line == "@live[":
			inside, frames = true, nil
		case inside && strings.HasPrefix(line, "]: "):
			inside = false
			if n, err := strconv.ParseInt(line[len("]: "):], 10, 64); err == nil {
				a.live += uint64(max(n, 0))
				a.stacks = append(a.stacks, held{uint64(max(n, 0)), frames})
			}
		case inside:
			name, _, _ := strings.Cut(line, "+")
			frames = append(frames, name)
		}
	}
	return a
}

var outstanding = regexp.MustCompile(`^([0-9]+) bytes in ([0-9]+) allocations from stack`)

// parseMemleak parses memleak's last complete list, which is followed by another one; the very last
// may be truncated.
//
//	[21:31:08] Top 100000 stacks with outstanding allocations:
//		12288000 bytes in 3000 allocations from stack
//			0x00005581a1	main+0x503 [bench_fp]
func parseMemleak(text string) answer {
	var a, last answer
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		m := outstanding.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "[") && strings.Contains(line, " stacks with outstanding allocations:"):
			last, a = a, answer{}
		case m != nil:
			a.live += number(m[1])
			a.allocs += number(m[2])
			a.stacks = append(a.stacks, held{bytes: number(m[1])})
		case len(a.stacks) > 0 && strings.HasPrefix(line, "0x"):
			_, symbol, _ := strings.Cut(line, "\t")
			name, _, _ := strings.Cut(symbol, "+")
			s := &a.stacks[len(a.stacks)-1]
			s.frames = append(s.frames, name)
		}
	}
	return last
}
