// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// A process that maps code in a loop keeps nobody else waiting: its unwind tables wait for their
// next load at most loadInterval, and in the long run at least loadShare times as long as the last
// load took. After the first loads they wait for less, from firstInterval on: a program's loader
// maps its libraries one after the other, and the next call needs the tables of all.
const (
	loadInterval  = 100 * time.Millisecond
	loadShare     = 10
	firstInterval = 2 * time.Millisecond
)

// pause returns how long the tables of a process wait after a load; Table.mu is held.
func (p *Process) pause(took time.Duration) time.Duration {
	p.loads = min(p.loads+1, 8)
	return min(firstInterval<<(p.loads-1), max(loadShare*took, firstInterval), loadInterval)
}

// NextLoad returns how long the unwind tables of a process wait before they are brought up to date
// again, at most 0 if they do not, and false for a process that is not traced.
func (t *Table) NextLoad(pid uint32) (wait time.Duration, traced bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.processes[pid]
	if p == nil || !p.traced {
		return 0, false
	}
	return time.Until(p.nextLoad), true
}

// IsUnloaded reports whether a process is known whose unwind tables were never loaded.
func (t *Table) IsUnloaded(pid uint32) bool {
	return t.is(pid, func(p *Process) bool { return !p.loaded })
}

// WalkAnew has the kernel half walk the stacks of a process again that it remembers. It is for the
// goroutine that has the transaction: an end of the process comes before or after it.
func (t *Table) WalkAnew(b ledger.Books, pid uint32) {
	t.mu.Lock()
	p := t.processes[pid]
	known := p != nil && !p.nameless
	if known {
		p.generation++
	}
	t.mu.Unlock()
	if known {
		t.tellKernel(b, p)
	}
}

// TablesLoaded notes that the unwind tables of a process were loaded, which took so long, and tells
// the kernel half. It reports whether that was the first time, and whether it changed what the
// kernel half can walk. layout is the number that the unwinder gave it, 0 if its stacks cannot be
// walked.
func (t *Table) TablesLoaded(b ledger.Books, pid, layout uint32, jit bool, took time.Duration) (first, changed bool) {
	t.mu.Lock()
	p := t.processes[pid]
	if p == nil {
		t.mu.Unlock()
		return false, false
	}
	first, changed = !p.loaded, p.jit != jit || p.layout != layout
	p.loaded, p.jit, p.layout = true, jit, layout
	p.nextLoad = time.Now().Add(p.pause(took))
	p.generation++ // walks that the kernel remembers may not hold any more
	t.mu.Unlock()
	t.tellKernel(b, p)
	return first, changed
}
