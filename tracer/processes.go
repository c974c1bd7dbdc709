// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// process is what the tracer knows of a pid; guarded by Tracer.mu.
type process struct {
	pid           uint32
	uid           uint32 // ledger.Process.User; 0: not looked up
	start         uint64 // clock ticks since boot; 0: it is gone
	traced        bool
	held          bool            // started by us, or a child of such a process
	cuda          bool            // maps a CUDA library
	user          bool            // has allocated
	booked        bool            // the ledger knows it
	torch         bool            // PyTorch's allocator has reported
	allocators    []bpf.TensorKey // of it, as far as reported
	loaded        bool            // its unwind tables were loaded at least once
	jit           bool            // writes a perf map file
	seed          uint64          // part of the hash of its stacks
	generation    uint32          // counts the changes of its mappings
	layout        uint32          // its number in the unwinder, 0: its stacks cannot be walked
	nextLoad      time.Time       // not before then are its unwind tables brought up to date again
	loads         uint            // how often they were
	nameless      bool            // it was gone when its name was to be read
	changed       uint64          // time of its latest event
	besideCapture bool            // there is a warning
	dated, older  bool            // it was looked up whether the process is older than the tracing, and it is
	inherited     []ledger.Event  // first reports of allocators that may be its parent's
	goneAt        uint64          // it does not exist: the value of Tracer.emptied at which it is ended; 0: it exists
}

// process finds or classifies a process that sent an event of a CUDA call;
// in a turn. It returns nil for one that is not traced.
func (t *Tracer) process(pid uint32) *process {
	p, ok := t.processes[pid]
	if !ok || p.reborn() {
		p = t.classify(pid)
	}
	if p == nil || !p.traced {
		return nil
	}
	if !p.cuda {
		p.cuda = true
		t.jobs.add(job{kind: jobScan, pid: pid})
	}
	t.book(p)
	return p
}

// reborn says whether another process has the pid of one that was gone when its name was to be read: of such a one
// the kernel may not tell the end.
func (p *process) reborn() bool {
	if !p.nameless {
		return false
	}
	start := procfs.StartTicks(p.pid)
	return start != 0 && start != p.start
}

// classify decides whether a process is traced, and lets the kernel know.
func (t *Tracer) classify(pid uint32) *process {
	p := &process{pid: pid, start: procfs.StartTicks(pid)}
	before := t.processes[pid] // had this pid, and may have left its entry
	var kernel bpf.Process
	switch {
	case t.coll.Maps["processes"].Lookup(pid, &kernel) == nil && (before == nil || kernel.Seed != before.seed):
		p.seed = kernel.Seed
		if kernel.Layout != 0 && t.unwind.Adopt(pid, kernel.Layout) { // its parent's
			p.layout, p.loaded = kernel.Layout, true
		}
		p.traced, p.held = kernel.Traced != 0, kernel.Held != 0 // a child of our command
		t.processes[pid] = p
		if kernel.Inherited != 0 {
			t.tellKernel(p) // from now on its end is reported
		}
		return p
	case len(t.config.PIDs) > 0:
		p.traced = slices.Contains(t.config.PIDs, pid)
	case len(t.config.Command) > 0:
		p.traced = false
	case t.config.Name != nil:
		names := procfs.Names(pid)
		p.traced = t.config.Name.MatchString(names)
		if !p.traced && !strings.Contains(names, "\n") { // without arguments: it is a zombie, or gone
			p.nameless = true
			t.nameless++
			if p.start = procfs.StartTicks(pid); p.start == 0 {
				t.processes[pid] = p // for what is left of it in the ring; told to the kernel it would hide who has its pid next
				return p
			}
		}
	default:
		p.traced = true
	}
	t.processes[pid] = p
	t.tellKernel(p)
	return p
}

// tellKernel enters the process into the kernel's list, so that its end is
// reported and its stacks are told from those of an earlier process with this pid.
func (t *Tracer) tellKernel(p *process) {
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
	if err := t.coll.Maps["processes"].Put(p.pid, entry); err != nil {
		t.turn.Tell(ledger.Warning{PID: p.pid, Text: fmt.Sprintf("process %d is not followed: %v", p.pid, err)})
	}
}

// book introduces a traced CUDA process to the ledger.
func (t *Tracer) book(p *process) {
	if !p.traced || p.booked {
		return
	}
	p.booked = true
	comm, exe := procfs.Comm(p.pid), procfs.Exe(p.pid)
	t.turn.Tell(ledger.Process{PID: p.pid, Comm: untrusted.Clean(comm), Exe: untrusted.Clean(exe), Begin: clock.Now(), User: t.userOf(p)})
	t.jobs.add(job{jobIntroduce, p.pid})
}

// userOf returns the user of a process as the books have it, which is looked up once; in a turn.
func (t *Tracer) userOf(p *process) uint32 {
	if p.uid == 0 {
		p.uid = procfs.User(p.pid)
	}
	return p.uid
}

// ownerOf is the same of a process that may be unknown.
func (t *Tracer) ownerOf(pid uint32) uint32 {
	t.desk.Take()
	defer t.turn.Done()
	if p := t.processes[pid]; p != nil {
		return t.userOf(p)
	}
	return ledger.NoUser
}

// traced lists the processes that are in the books and still run.
func (t *Tracer) traced() []uint32 {
	t.desk.Take()
	defer t.turn.Done()
	var pids []uint32
	for pid, p := range t.processes {
		if p.traced && p.cuda {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// finished says whether all that was asked for by pid or command has ended.
func (t *Tracer) finished() bool {
	if t.everyone() {
		return false
	}
	if t.command != nil && !t.command.ended() {
		return false
	}
	t.desk.Take()
	defer t.turn.Done()
	for _, p := range t.processes {
		if p.traced {
			return false
		}
	}
	return true
}

// exited ends a process; in a turn.
func (t *Tracer) exited(e *bpf.Event) {
	_ = t.coll.Maps["processes"].Delete(e.Pid)
	t.leaveShare(e.Pid)
	p := t.processes[e.Pid]
	if p != nil {
		t.leaveBlocks(p)
		t.bury(p)
	}
	delete(t.processes, e.Pid)
	t.usage.Forget(e.Pid)
	if p != nil && p.booked {
		t.turn.Apply(&ledger.Event{Op: ledger.Exit, PID: e.Pid, TID: e.Tid, Time: e.Time})
	}
	t.jobs.add(job{kind: jobForget, pid: e.Pid})
}

// maxTombs bounds what is remembered of ended processes.
const maxTombs = 1 << 12

// bury remembers that a process has ended: a scan made before may still list it.
func (t *Tracer) bury(p *process) {
	if len(t.tombs) >= maxTombs {
		clear(t.tombs)
	}
	t.tombs[p.pid] = p.start
}

// executed begins a process anew that called execve; in a turn.
func (t *Tracer) executed(e *bpf.Event) {
	p := t.processes[e.Pid]
	if p == nil {
		if t.config.Name != nil {
			_ = t.coll.Maps["processes"].Delete(e.Pid) // a child that has the name of its parent no more
		}
		return
	}
	t.leaveBlocks(p)
	t.usage.Forget(p.pid)
	t.leaveShare(p.pid)
	if p.traced {
		t.jobs.add(job{kind: jobScan, pid: p.pid}) // one that came before this event took its mappings for the old program's
	}
	if p.booked {
		t.turn.Apply(&ledger.Event{Op: ledger.Exec, PID: e.Pid, TID: e.Tid, Time: e.Time})
	}
	if t.config.Name != nil || (p.traced && t.everyone()) {
		// Another program: whether it is meant is decided when it uses CUDA.
		delete(t.processes, e.Pid)
		_ = t.coll.Maps["processes"].Delete(e.Pid)
		return
	}
	*p = process{pid: p.pid, start: p.start, traced: p.traced, held: p.held}
	t.tellKernel(p)
}

// warnOfNameless says how much --name may have missed; in a turn.
func (t *Tracer) warnOfNameless() {
	if t.namelessCalls > 0 {
		t.turn.Tell(ledger.Warning{Text: fmt.Sprintf("processes that ended before their names could be read, and are left out: %d, with %d allocations and frees", t.nameless, t.namelessCalls)})
	}
}
