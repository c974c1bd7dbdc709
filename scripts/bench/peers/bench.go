// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type bench struct {
	fake, floor, vramprof, python string // programs and folders
	train                         string // train.py of the real PyTorch
	torchRoot, torchCuda          string // empty: not installed
	torchC10                      string
	work                          string
	rounds, pairs                 int
	seconds, torchSeconds         float64
	memleakEnv                    []string

	out       *bufio.Writer
	processes []*process // all started processes
	absent    map[string]bool
}

func (b *bench) miss(tool, why string) {
	b.absent[tool] = true
	fmt.Fprintf(b.out, "missing %s %s\n", tool, strings.Join(strings.Fields(why), " "))
	b.out.Flush()
}

// has reports whether a tool takes part, or the tool of which it is a mode ("bpftrace-cuda").
func (b *bench) has(tool string) bool {
	of, _, _ := strings.Cut(tool, "-")
	return !b.absent[of] && !b.absent[tool]
}

// sample appends a figure.
func (b *bench) sample(table, tool, program, figure string, value any) {
	if v, ok := value.(float64); ok {
		value = fmt.Sprintf("%.6g", v)
	}
	fmt.Fprintln(b.out, table, tool, program, figure, value)
	b.out.Flush()
}

func (b *bench) lib(name string) string { return filepath.Join(b.fake, name) }

func (b *bench) progress(format string, args ...any) {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		fmt.Fprintf(os.Stderr, "\r\033[K"+format, args...)
	}
}

// folder creates an empty folder for a tool's files.
func (b *bench) folder() (string, error) { return os.MkdirTemp(b.work, "peer") }

func (b *bench) killAll() {
	for _, p := range b.processes {
		p.kill()
	}
	b.processes = nil
}

// reap ends the processes of a round.
func (b *bench) reap() { b.killAll() }
