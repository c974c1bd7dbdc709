// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"time"
)

var (
	plainPrograms = []string{"c_cuda", "c_cudart", "fp_cuda", "fp_cudart", "p64_cuda", "p64_cudart", "py_cuda", "py_cudart", "py64_cuda", "py64_cudart"}
	namedPrograms = []string{"fp_named", "fp64_named", "py_named"}
	heapPrograms  = []string{"fp_libc", "fp64_libc", "py_libc"}
)

func (b *bench) driverTools() []tool {
	return []tool{
		{name: "none", start: noTool},
		{name: "floor", start: floor},
		{name: "vramprof", start: vramprof(), read: readPprof},
		{name: "vramprof-capture", start: vramprof("-f", "pprof", "-f", "capture"), read: readPprof},
		{name: "bpftrace-cuda", start: bpftrace(liveBytes("cuMemAlloc_v2", "cuMemFree_v2")), read: readBpftrace},
		{name: "bpftrace-cudart", start: bpftrace(liveBytes("cudaMalloc", "cudaFree")), read: readBpftrace},
		{name: "memleak", start: memleak, read: readMemleak, through: true},
	}
}

// programsOf returns the programs that a tool can trace.
func programsOf(t tool) []string {
	ofLibrary := func(lib string) []string {
		return slices.DeleteFunc(slices.Clone(plainPrograms), func(p string) bool { return !strings.HasSuffix(p, lib) })
	}
	switch t.name {
	case "bpftrace-cuda":
		return ofLibrary("_cuda")
	case "bpftrace-cudart":
		return ofLibrary("_cudart")
	case "memleak":
		return namedPrograms
	default:
		return slices.Concat(plainPrograms, namedPrograms)
	}
}

// measureCalls measures the time that each tool adds to a thread's allocation and free.
func (b *bench) measureCalls() error {
	tools := slices.DeleteFunc(b.driverTools(), func(t tool) bool { return !b.has(t.name) })
	for round := range b.rounds {
		for _, t := range rotated(tools, round) {
			b.progress("calls, round %d of %d: %s", round+1, b.rounds, t.name)
			groups := [][]string{programsOf(t)}
			if t.through {
				groups = nil
				for _, name := range programsOf(t) {
					groups = append(groups, []string{name})
				}
			}
			for _, names := range groups {
				if !b.has(t.name) {
					break
				}
				if err := b.timeCalls("calls", t, names); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// rotated starts with another tool in each round, so that no tool always follows the most expensive
// one.
func rotated(tools []tool, round int) []tool {
	n := round % len(tools)
	return slices.Concat(tools[n:], tools[:n])
}

// timeCalls starts the programs, attaches the tool to all of them, and runs them one after the
// other.
func (b *bench) timeCalls(table string, t tool, names []string) error {
	defer b.reap()
	dir, err := b.folder()
	if err != nil {
		return err
	}
	var programs []program
	var targets []target
	for _, name := range names {
		p, err := b.launch(name, b.pairs, tailsOf(name)...)
		if err != nil {
			return err
		}
		programs = append(programs, p)
		targets = append(targets, b.target(p))
	}
	var warm *program
	if strings.HasPrefix(t.name, "vramprof") {
		if warm, err = b.warmUp(); err != nil {
			return err
		}
		targets = append(targets, b.target(*warm))
	}
	traced, ok, err := b.begin(t, dir, targets)
	if !ok {
		return err
	}
	if warm != nil {
		if _, err := warm.finish(false, time.Minute); err != nil {
			return err
		}
	}
	for _, p := range programs {
		f, err := p.finish(false, 2*time.Minute)
		if err != nil {
			return err
		}
		for _, figure := range []string{"ns_per_pair", "pair_p50", "pair_p999"} {
			if value, ok := f[figure]; ok {
				b.sample(table, t.name, p.name, figure, value)
			}
		}
	}
	_, _, err = b.end(t, traced, dir)
	return err
}

// warmUp returns a program that calls the runtime for some seconds: then vramprof has detached its
// probes from the functions that call the driver, as in every job that has run for so long.
func (b *bench) warmUp() (*program, error) {
	p, err := b.launch("c_cudart", 0, "--rate", "100", "--seconds", "5")
	return &p, err
}

// tailsOf returns the option to time single pairs, which C programs with one call path have.
func tailsOf(name string) []string {
	if strings.HasPrefix(name, "py") || strings.Contains(name, "64_") {
		return nil
	}
	return []string{"--tails"}
}
