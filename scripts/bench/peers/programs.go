// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const depth = "30"

// program is one of the benchmark's programs, waiting. Its name means:
//
//	c_cuda        C without frame pointers, the driver's functions   p64_  the same, from 64 distinct stacks in turn
//	fp_cudart     C with frame pointers, the runtime's functions     py64_ Python, 64 stacks
//	py_named      Python through libbench_named.so, for memleak      fp64_ with frame pointers, 64 stacks
//	fp_libc       posix_memalign and free of the C library
type program struct {
	*process
	name string
}

// library returns the library to probe for functions of one library.
func (b *bench) library(name string) string {
	switch _, lib, _ := strings.Cut(name, "_"); lib {
	case "cuda":
		return b.lib("libcuda.so.1")
	case "named":
		return b.lib("libbench_named.so")
	case "libc":
		return "c"
	default:
		return b.lib("libcudart.so.12")
	}
}

// command returns the command line of a program, without its options.
func (b *bench) command(name string) []string {
	language, lib, _ := strings.Cut(name, "_")
	var command []string
	switch {
	case strings.HasPrefix(language, "py"):
		command = []string{b.python, b.lib("bench.py")}
	case strings.HasPrefix(language, "fp"):
		command = []string{b.lib("bench_fp")}
	default:
		command = []string{b.lib("bench_c")}
	}
	if lib == "cuda" {
		command = append(command, "cuda")
	} else {
		command = append(command, "cudart")
	}
	command = append(command, depth)
	switch lib {
	case "named":
		command = append(command, "COUNT", "--through", b.library(name))
	case "libc":
		command = append(command, "COUNT", "--through", "-")
	default:
		command = append(command, "COUNT")
	}
	if strings.HasSuffix(language, "64") {
		command = append(command, "--paths", "64")
	}
	return command
}

// launch starts a program that waits. count is its number of call pairs.
func (b *bench) launch(name string, count int, options ...string) (program, error) {
	command := append(b.command(name), options...)
	command[indexOf(command, "COUNT")] = strconv.Itoa(count)
	p, err := start(nil, command[0], append(command[1:], "--wait")...)
	if err != nil {
		return program{}, err
	}
	b.processes = append(b.processes, p)
	if _, err := p.expect("ready ", 30*time.Second); err != nil {
		return program{}, err
	}
	return program{p, name}, nil
}

func indexOf(words []string, word string) int {
	for i, w := range words {
		if w == word {
			return i
		}
	}
	return -1
}

func (b *bench) target(p program) target { return target{p.pid(), b.library(p.name)} }

// finish runs a waiting program and returns its figures. With --hold the program stays until its
// books have been read.
func (p program) finish(hold bool, limit time.Duration) (map[string]float64, error) {
	p.signal(syscall.SIGUSR1)
	var text string
	var err error
	if hold {
		_, err = p.expect("done", limit)
		text = p.all.String()
	} else {
		text, err = p.wait(limit)
	}
	return figures(text), err
}

// figures parses lines such as "ns_per_pair 74.2".
func figures(text string) map[string]float64 {
	all := make(map[string]float64)
	for line := range strings.Lines(text) {
		var name string
		var value float64
		if n, _ := fmt.Sscanf(line, "%s %g", &name, &value); n == 2 {
			all[name] = value
		}
	}
	return all
}
