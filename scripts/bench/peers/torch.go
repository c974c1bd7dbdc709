// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// stepSleeps: launch-bound like no real job, and with the time that a busy GPU takes.
var stepSleeps = []struct {
	name  string
	sleep float64
}{{"launch", 0}, {"busy", 0.02}}

func (b *bench) torchTools() []tool {
	return []tool{
		{name: "none", start: noTool},
		{name: "floor", start: floor},
		{name: "vramprof", start: vramprof(), read: readPprof},
		{name: "vramprof-every", start: vramprof("--sample", "0"), read: readPprof},
		{name: "vramprof-capture", start: vramprof("-f", "pprof", "-f", "capture"), read: readPprof},
		{name: "vramprof-noholders", start: vramprof("--holders", "off"), read: readPprof},
		{name: "vramprof-segments", start: vramprof("--tensors", "off")},
		{name: "bpftrace", start: bpftrace(liveTensors), read: readBpftrace},
		{name: "pytorch-python"},
		{name: "pytorch-all"},
	}
}

// measureTorch measures what each tool adds to a training step. All tools take turns in one process
// that keeps training.
func (b *bench) measureTorch() error {
	if b.torchRoot == "" || b.torchC10 == "" {
		b.miss("torch", "the real PyTorch is unavailable: scripts/real-torch.sh prints the reason")
		return nil
	}
	defer b.reap()
	// A copy of the probed library: probes affect every process that uses the same file.
	library, err := os.ReadFile(b.torchC10)
	if err != nil {
		return err
	}
	private, err := b.folder()
	if err != nil {
		return err
	}
	b.torchC10 = filepath.Join(private, "libc10.so.2.6")
	if err := os.WriteFile(b.torchC10, library, 0o755); err != nil {
		return err
	}
	env := []string{"LD_LIBRARY_PATH=" + private + ":" + b.torchCuda + ":" + b.fake, "PYTHONPATH=" + filepath.Join(filepath.Dir(b.train), "site")}
	job, err := start(env, filepath.Join(b.torchRoot, "python3"), b.train, "--serve")
	if err != nil {
		return err
	}
	b.processes = append(b.processes, job)
	if _, err := job.ask(2*time.Minute, "run 4 0"); err != nil { // the first steps are slower
		return err
	}
	tools := b.torchTools()
	for round := range b.rounds {
		for _, t := range rotated(tools, round) {
			if !b.has(t.name) {
				continue
			}
			b.progress("PyTorch, round %d of %d: %s", round+1, b.rounds, t.name)
			if err := b.trainUnder(job, t); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return nil
}

// trainUnder makes the job train under one tool.
func (b *bench) trainUnder(job *process, t tool) error {
	dir, err := b.folder()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var traced *process
	began, ok := time.Now(), true
	if t.start == nil {
		_, err = job.ask(time.Minute, "history "+t.name[len("pytorch-"):])
	} else {
		traced, ok, err = b.begin(t, dir, []target{{job.pid(), b.torchC10}})
	}
	if err != nil || !ok {
		return err
	}
	b.sample("torch", t.name, "job", "attach_s", time.Since(began).Seconds())
	var before cost
	if traced != nil {
		before = costOf(traced.pid())
	}
	began = time.Now()
	allocations, err := b.steps(job, t)
	if err != nil {
		return err
	}
	b.sample("torch", t.name, "job", "allocations", allocations)
	switch {
	case t.start == nil:
		return b.snapshot(job, t, dir)
	case traced == nil:
		return nil
	}
	wall := time.Since(began)
	time.Sleep(300 * time.Millisecond)
	after := costOf(traced.pid())
	printed, took, err := b.end(t, traced, dir)
	if err != nil {
		return err
	}
	b.sample("torch", t.name, "job", "cpu_s", (after.cpu - before.cpu).Seconds())
	b.sample("torch", t.name, "job", "wall_s", wall.Seconds())
	b.sample("torch", t.name, "job", "rss_bytes", after.rss)
	b.sample("torch", t.name, "job", "maps_bytes", max(before.maps, after.maps))
	b.sample("torch", t.name, "job", "end_s", took.Seconds())
	if t.read == nil {
		return nil
	}
	b.sample("torch", t.name, "job", "disk_bytes", sizeOf(dir))
	a, err := t.read(printed, dir, "tensor")
	if err != nil {
		return err
	}
	whole, python := a.shares()
	b.sample("torch", t.name, "job", "said_allocations", a.allocs)
	b.sample("torch", t.name, "job", "whole_share", whole)
	b.sample("torch", t.name, "job", "python_share", python)
	if a.saysLost {
		b.sample("torch", t.name, "job", "said_lost", a.lost)
	}
	return nil
}

// steps trains at both lengths of a step. The count is PyTorch's own number of allocations.
func (b *bench) steps(job *process, t tool) (allocations float64, err error) {
	for _, s := range stepSleeps {
		_, _, warm, err := train(job, 0.3, s.sleep)
		if err != nil {
			return 0, err
		}
		steps, seconds, n, err := train(job, b.torchSeconds, s.sleep)
		if err != nil {
			return 0, err
		}
		b.sample("torch", t.name, s.name, "step_ms", seconds/steps*1000)
		allocations += warm + n
	}
	return allocations, nil
}

// train makes the job train for some seconds.
func train(job *process, seconds, sleep float64) (steps, took, allocations float64, err error) {
	words, err := job.ask(time.Minute, fmt.Sprintf("run %g %g", seconds, sleep))
	if err != nil {
		return 0, 0, 0, err
	}
	if n, _ := fmt.Sscan(strings.Join(words, " "), &steps, &took, &allocations); n != 3 || steps == 0 {
		return 0, 0, 0, fmt.Errorf("the training answers %q", words)
	}
	return steps, took, allocations, nil
}

// snapshot stops PyTorch's own recorder and has it write its events. The job pauses meanwhile, so
// it bears the cost.
func (b *bench) snapshot(job *process, t tool, dir string) error {
	words, err := job.ask(5*time.Minute, "snapshot "+filepath.Join(dir, "snapshot.pickle"))
	if err == nil && len(words) != 3 {
		err = fmt.Errorf("the training answers %q", words)
	}
	if err != nil {
		return err
	}
	b.sample("torch", t.name, "job", "disk_bytes", words[0])
	b.sample("torch", t.name, "job", "end_s", words[1])
	b.sample("torch", t.name, "job", "said_allocations", words[2])
	_, err = job.ask(time.Minute, "history off")
	return err
}
