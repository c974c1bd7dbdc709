// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// measureHeap measures profilers of the C library's heap on malloc, for comparison. vramprof does
// not trace malloc.
func (b *bench) measureHeap() error {
	attached := []tool{{name: "none", start: noTool}, {name: "memleak", start: memleak, through: true}}
	for round := range b.rounds {
		b.progress("malloc, round %d of %d", round+1, b.rounds)
		for _, t := range attached {
			if !b.has(t.name) {
				continue
			}
			for _, name := range heapPrograms {
				if !b.has(t.name) {
					break
				}
				if err := b.timeCalls("heap", t, []string{name}); err != nil {
					return err
				}
			}
		}
		for _, t := range []struct {
			name string
			argv func(file string) []string
		}{
			{"heaptrack", func(file string) []string { return []string{"heaptrack", "-o", file} }},
			{"memray", func(file string) []string {
				return []string{b.python, "-m", "memray", "run", "--native", "-q", "-f", "-o", file}
			}},
		} {
			if !b.has(t.name) {
				continue
			}
			for _, name := range heapPrograms {
				if t.name == "memray" && name != "py_libc" {
					continue
				}
				if err := b.timeUnder(t.name, t.argv, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// timeUnder starts a program under a tool that must be present from the start.
func (b *bench) timeUnder(tool string, argv func(file string) []string, name string) error {
	defer b.reap()
	dir, err := b.folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	command := b.command(name)
	command[indexOf(command, "COUNT")] = strconv.Itoa(b.pairs)
	if tool == "memray" {
		command = command[1:] // the tool is an interpreter itself
	}
	command = append(argv(filepath.Join(dir, "events")), command...)
	p, err := start(nil, command[0], command[1:]...)
	if err != nil {
		return err
	}
	b.processes = append(b.processes, p)
	text, err := p.wait(2 * time.Minute)
	if err != nil {
		return err
	}
	b.sample("heap", tool, name, "ns_per_pair", figures(text)["ns_per_pair"])
	b.sample("heap", tool, name, "disk_bytes", sizeOf(dir))
	return nil
}
