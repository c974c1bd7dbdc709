// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// load is a program with known calls and bytes, against which a tool's results are checked.
type load struct {
	name    string
	program string // its kind; memleak traces the same through libbench_named.so
	options []string
	early   bool // it starts before the tool: the number of missed calls shows when the tool was ready
}

const keepRate = 1000 // allocations per second of the early loads

func (b *bench) loads() []load {
	seconds := strconv.FormatFloat(b.seconds, 'g', -1, 64)
	// 5,000 allocations from 64 stacks remain at the end.
	left := []string{"--threads", "2", "--seconds", seconds, "--live", "5000", "--sites", "64", "--late"}
	keep := []string{"--keep", "--rate", strconv.Itoa(keepRate), "--paths", "64"}
	return []load{
		{name: "rate", program: "fp_cudart", options: append([]string{"--rate", "25000"}, left...)},
		{name: "full", program: "fp_cudart", options: left},
		{name: "c", program: "c_cudart", options: keep, early: true},
		{name: "fp", program: "fp_cudart", options: keep, early: true},
		{name: "py", program: "py_cudart", options: keep, early: true},
	}
}

// throughNames maps a program to the same program with the library that memleak can trace.
var throughNames = map[string]string{"c_cudart": "c_named", "fp_cudart": "fp_named", "py_cudart": "py_named"}

// measureBooks measures what each tool reports about programs with known calls and bytes, and its
// cost.
func (b *bench) measureBooks() error {
	tools := slices.DeleteFunc(b.driverTools(), func(t tool) bool { return t.read == nil || !b.has(t.name) || t.name == "bpftrace-cuda" })
	for round := range b.rounds {
		for _, l := range b.loads() {
			for _, t := range rotated(tools, round) {
				if !b.has(t.name) {
					continue
				}
				if l.early && t.name == "vramprof-capture" {
					continue // as fast as without a tool
				}
				b.progress("books, round %d of %d: %s, %s", round+1, b.rounds, l.name, t.name)
				if err := b.keepBooks(l, t); err != nil {
					return fmt.Errorf("%s, %s: %w", l.name, t.name, err)
				}
			}
		}
	}
	return nil
}

func (b *bench) keepBooks(l load, t tool) error {
	defer b.reap()
	dir, err := b.folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name, count := l.program, 0
	if t.through {
		name = throughNames[name]
	}
	if l.early { // long enough for the slowest tool on an idle machine
		count = int(b.seconds+3) * keepRate
	}
	p, err := b.launch(name, count, append(l.options, "--hold")...)
	if err != nil {
		return err
	}
	var f map[string]float64
	ran := make(chan error, 1)
	run := func() {
		var err error
		f, err = p.finish(true, 3*time.Minute)
		ran <- err
	}
	if l.early {
		go run()
		time.Sleep(200 * time.Millisecond)
	}
	began := time.Now()
	traced, ok, err := b.begin(t, dir, []target{b.target(p)})
	if !ok {
		return err
	}
	attached, before := time.Since(began), costOf(traced.pid())
	if !l.early {
		go run()
	}
	if err := <-ran; err != nil {
		return err
	}
	done := time.Now()
	time.Sleep(300 * time.Millisecond) // events still in the rings
	after := costOf(traced.pid())
	printed, took, err := b.end(t, traced, dir)
	if err != nil {
		return err
	}
	a, err := t.read(printed, dir, "driver")
	if err != nil {
		return err
	}
	b.judge(l, t, f, a)
	if l.early && a.allocs > 0 { // otherwise the program ended before the tool was ready
		// The program has a fixed rate: the tool's count shows when it was ready.
		b.sample("books", t.name, l.name, "ready_s", done.Sub(began).Seconds()-float64(a.allocs)/keepRate)
	}
	b.sample("books", t.name, l.name, "attach_s", attached.Seconds())
	b.sample("books", t.name, l.name, "cpu_attach_s", before.cpu.Seconds())
	b.sample("books", t.name, l.name, "cpu_s", (after.cpu - before.cpu).Seconds())
	b.sample("books", t.name, l.name, "cpu_total_s", traced.total().Seconds())
	b.sample("books", t.name, l.name, "wall_s", done.Sub(began).Seconds()-attached.Seconds())
	b.sample("books", t.name, l.name, "rss_bytes", after.rss)
	b.sample("books", t.name, l.name, "maps_bytes", max(before.maps, after.maps))
	b.sample("books", t.name, l.name, "end_s", took.Seconds())
	b.sample("books", t.name, l.name, "disk_bytes", sizeOf(dir))
	return nil
}

// judge compares a tool's results with the program's own.
func (b *bench) judge(l load, t tool, f map[string]float64, a answer) {
	b.sample("books", t.name, l.name, "allocations", f["allocations"])
	b.sample("books", t.name, l.name, "live_bytes", f["live_bytes"])
	if a.counts {
		b.sample("books", t.name, l.name, "said_allocations", a.allocs)
	}
	b.sample("books", t.name, l.name, "said_live_bytes", a.live)
	if a.saysLost {
		b.sample("books", t.name, l.name, "said_lost", a.lost)
	}
	b.sample("books", t.name, l.name, "stacks", len(a.stacks))
	if len(a.stacks) == 0 {
		return
	}
	whole, python := a.shares()
	b.sample("books", t.name, l.name, "whole_share", whole)
	b.sample("books", t.name, l.name, "python_share", python)
}
