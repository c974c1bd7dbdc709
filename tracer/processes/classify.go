// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Find returns the process that sent an event of a CUDA call, and has the books know it. It returns
// nil for a process that is not traced.
func (t *Table) Find(b ledger.Books, pid uint32) *Process {
	t.mu.Lock()
	p := t.processes[pid]
	settled := p != nil && !p.nameless && (!p.traced || p.cuda && p.booked) // as mostly
	t.mu.Unlock()
	if !settled {
		p = t.settle(b, pid, p)
	}
	if !p.traced {
		return nil
	}
	return p
}

// settle classifies a process unless it is known, and has the books know it.
func (t *Table) settle(b ledger.Books, pid uint32, p *Process) *Process {
	if p == nil || p.isReborn() {
		p = t.classify(b, pid)
	}
	if !p.traced {
		return p
	}
	t.mu.Lock()
	first := !p.cuda
	p.cuda = true
	t.mu.Unlock()
	if first {
		t.Scan(pid)
	}
	t.book(b, p)
	return p
}

// Wants reports whether a process that a scan has found is traced, and decides it if need be.
func (t *Table) Wants(b ledger.Books, pid uint32) bool {
	p := t.mapped(b, pid)
	return p != nil && p.traced
}

// Found notes that a process maps a CUDA library, and has the books know it. It reports whether the
// process is traced and its unwind tables are still to be loaded.
func (t *Table) Found(b ledger.Books, pid uint32) (load bool) {
	p := t.mapped(b, pid)
	if p == nil {
		return false
	}
	t.mu.Lock()
	p.cuda = true
	load = p.traced && !p.loaded
	t.mu.Unlock()
	if p.traced {
		t.book(b, p)
	}
	return load
}

// mapped finds or classifies a process that a scan has found. It returns nil for one that has ended
// since, and whose books may be closed already.
func (t *Table) mapped(b ledger.Books, pid uint32) *Process {
	if p := t.get(pid); p != nil && !p.isReborn() {
		return p
	}
	start := procfs.StartTicks(pid)
	t.mu.Lock()
	buried := start == t.tombs[pid]
	t.mu.Unlock()
	if start == 0 || buried {
		return nil
	}
	return t.classify(b, pid)
}

// Expect enters the processes that were asked for by pid, also those that do not use CUDA yet.
func (t *Table) Expect(b ledger.Books) {
	for _, pid := range t.PIDs {
		if !t.IsKnown(pid) && procfs.Exists(pid) {
			t.classify(b, pid)
		}
	}
}

// Start enters the command, which waits until it is followed.
func (t *Table) Start(b ledger.Books, pid uint32) {
	p := &Process{table: t, pid: pid, traced: true, held: true}
	t.enter(p)
	t.tellKernel(b, p)
}

// classify decides whether a process is traced, and lets the kernel know.
func (t *Table) classify(b ledger.Books, pid uint32) *Process {
	p := &Process{table: t, pid: pid, start: procfs.StartTicks(pid)}
	var kernel bpf.Process
	switch {
	case t.inKernel(pid, &kernel):
		p.seed = kernel.Seed
		if kernel.Layout != 0 && t.Adopt(pid, kernel.Layout) { // its parent's
			p.layout, p.loaded = kernel.Layout, true
		}
		p.traced, p.held = kernel.Traced != 0, kernel.Held != 0 // a child of our command
		t.enter(p)
		if kernel.Inherited != 0 {
			t.tellKernel(b, p) // from now on its end is reported
		}
		return p
	case len(t.PIDs) > 0:
		p.traced = slices.Contains(t.PIDs, pid)
	case t.Command:
		p.traced = false
	case t.Name != nil:
		names := procfs.Names(pid)
		p.traced = t.Name.MatchString(names)
		if !p.traced && !strings.Contains(names, "\n") && t.isGone(p) { // no arguments: a zombie, or gone
			return p
		}
	default:
		p.traced = true
	}
	t.enter(p)
	t.tellKernel(b, p)
	return p
}

// inKernel reports whether the kernel half has a process, and not only what an earlier one with its
// pid has left.
func (t *Table) inKernel(pid uint32, entry *bpf.Process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.processes[pid]
	return t.Kernel.Lookup(pid, entry) == nil && (before == nil || entry.Seed != before.seed)
}

// isGone notes a process whose name could not be read, and reports whether it is gone: then it is
// entered for its events in the ring only. Told to the kernel, it would hide the next process with
// its pid.
func (t *Table) isGone(p *Process) bool {
	p.nameless, p.start = true, procfs.StartTicks(p.pid)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nameless++
	if p.start == 0 {
		t.processes[p.pid] = p
	}
	return p.start == 0
}

func (t *Table) enter(p *Process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.processes[p.pid] = p
}

// tellKernel enters a process into the kernel's list, so that its end is reported and its stacks
// are told from those of an earlier process with this pid.
func (t *Table) tellKernel(b ledger.Books, p *Process) {
	t.mu.Lock()
	err := t.put(p)
	t.mu.Unlock()
	if err != nil {
		b.Tell(ledger.Warning{PID: p.pid, Text: fmt.Sprintf("process %d is not followed: %v", p.pid, err)})
	}
}

// put writes the kernel's entry of a process; t.mu is held.
func (t *Table) put(p *Process) error {
	if p.seed == 0 {
		p.seed = clock.Now()
	}
	entry := bpf.Process{Seed: p.seed, Generation: p.generation, Layout: p.layout}
	if p.traced {
		entry.Traced = 1
	}
	if p.held {
		entry.Held = 1
	}
	if p.jit {
		entry.Jit = 1
	}
	return t.Kernel.Put(p.pid, entry)
}

// book has the books know a traced CUDA process.
func (t *Table) book(b ledger.Books, p *Process) {
	t.mu.Lock()
	first := p.traced && !p.booked
	p.booked = p.booked || first
	t.mu.Unlock()
	if !first {
		return
	}
	comm, exe := procfs.Comm(p.pid), procfs.Exe(p.pid)
	b.Tell(ledger.Process{PID: p.pid, Comm: untrusted.Clean(comm), Exe: untrusted.Clean(exe), Begin: clock.Now(), User: p.User(), OwnRoot: procfs.OwnRoot(p.pid), Started: p.start})
	t.Introduce(p.pid)
}
