// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"fmt"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxTombs bounds how many ended processes are remembered.
const maxTombs = 1 << 12

// Release takes a process that has ended off the kernel half's list. Exit comes after it, when what
// others know of the process was booked.
func (t *Table) Release(pid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_ = t.Kernel.Delete(pid)
}

// Exit ends a process, and books its end. It remembers the process: a scan made before may still
// list it.
func (t *Table) Exit(b ledger.Books, e *bpf.Event) {
	t.mu.Lock()
	p := t.processes[e.Pid]
	if p != nil {
		if len(t.tombs) >= maxTombs {
			clear(t.tombs)
		}
		t.tombs[p.pid] = p.start
		t.matched = t.matched || p.traced
	}
	delete(t.processes, e.Pid)
	booked := p != nil && p.booked
	t.mu.Unlock()
	if booked {
		b.Apply(&ledger.Event{Op: ledger.Exit, PID: e.Pid, TID: e.Tid, Time: e.Time})
	}
}

// Exec begins a process anew that called execve, and books it.
func (t *Table) Exec(b ledger.Books, e *bpf.Event) {
	p := t.get(e.Pid)
	if p == nil {
		if t.Name != nil {
			t.Release(e.Pid) // a child that no longer has the name of its parent
		}
		return
	}
	t.mu.Lock()
	traced, booked := p.traced, p.booked
	t.mu.Unlock()
	if traced {
		t.Scan(e.Pid) // a scan before this event took its mappings for the old program's
	}
	if booked {
		b.Apply(&ledger.Event{Op: ledger.Exec, PID: e.Pid, TID: e.Tid, Time: e.Time})
	}
	if t.Name != nil || traced && t.Everyone() {
		// Another program: whether it is traced is decided when it uses CUDA.
		t.mu.Lock()
		delete(t.processes, e.Pid)
		_ = t.Kernel.Delete(e.Pid)
		t.mu.Unlock()
		return
	}
	t.mu.Lock()
	*p = Process{table: t, pid: p.pid, start: p.start, traced: p.traced, held: p.held}
	t.mu.Unlock()
	t.tellKernel(b, p)
}

// CountNameless counts an allocation or a free if its process was gone before its name could be
// read.
func (t *Table) CountNameless(pid uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.processes[pid]; p != nil && p.nameless {
		t.namelessCalls++
	}
}

// WarnOfNameless tells the books how much Name may have missed.
func (t *Table) WarnOfNameless(b ledger.Books) {
	t.mu.Lock()
	processes, calls := t.nameless, t.namelessCalls
	t.mu.Unlock()
	if calls > 0 {
		b.Tell(ledger.Warning{Text: fmt.Sprintf("processes that ended before their names could be read, and are left out: %d, with %d allocations and frees", processes, calls)})
	}
}
