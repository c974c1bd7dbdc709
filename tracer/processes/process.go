// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Process is what is known of a pid; its fields are guarded by Table.mu.
type Process struct {
	table      *Table
	pid        uint32
	user       uint32 // ledger.Process.User; 0: not looked up
	start      uint64 // clock ticks since boot; 0: it is gone
	traced     bool
	held       bool      // the command, or a child of it
	cuda       bool      // maps a CUDA library
	allocated  bool      // an allocation was booked
	devices    uint64    // ordinals below 64 of those
	booked     bool      // the books know it
	doubted    bool      // the books were told of a doubt about its events
	loaded     bool      // its unwind tables were loaded at least once
	jit        bool      // writes a perf map
	seed       uint64    // part of the hash of its stacks
	generation uint32    // counts the changes of its mappings
	layout     uint32    // its number in the unwinder, 0: its stacks cannot be walked
	nextLoad   time.Time // not before then are its unwind tables brought up to date again
	loads      uint      // how often they were, at most 8
	nameless   bool      // it was gone when its name was to be read
	changed    uint64    // time of its latest event
}

// PID returns the kernel's tgid of the process.
func (p *Process) PID() uint32 { return p.pid }

// User returns the user of the process as ledger.Process has it.
func (p *Process) User() uint32 {
	p.table.mu.Lock()
	user := p.user
	p.table.mu.Unlock()
	if user != 0 {
		return user
	}
	user = procfs.User(p.pid)
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.user = user
	return user
}

// UserOf returns the same of a process that may not be known.
func (t *Table) UserOf(pid uint32) uint32 {
	if p := t.get(pid); p != nil {
		return p.User()
	}
	return ledger.NoUser
}

// Changes notes the time of an event. Those of calls that are reported on return with the time of
// their entry come late: the latest time counts.
func (p *Process) Changes(time uint64) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	p.changed = max(p.changed, time)
}

// Allocates notes an allocation on a device. It reports whether it is the first of the process, and
// whether it is its first there.
func (p *Process) Allocates(device int32) (first, firstThere bool) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	first, p.allocated = !p.allocated, true
	if device >= 0 && device < 64 && p.devices>>device&1 == 0 {
		p.devices |= 1 << device
		firstThere = true
	}
	return first, firstThere
}

// Doubt notes a doubt about the events of the process, and reports whether it is the first.
func (p *Process) Doubt() (first bool) {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	first, p.doubted = !p.doubted, true
	return first
}

// HasNoTables reports whether the unwind tables of the process were loaded, and found no room.
func (p *Process) HasNoTables() bool {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	return p.loaded && p.layout == 0
}

// isReborn reports whether another process has the pid of a process that was gone when its name was
// to be read: the kernel may not report the end of such a process.
func (p *Process) isReborn() bool {
	p.table.mu.Lock()
	nameless, before := p.nameless, p.start
	p.table.mu.Unlock()
	if !nameless {
		return false
	}
	start := procfs.StartTicks(p.pid)
	return start != 0 && start != before
}
