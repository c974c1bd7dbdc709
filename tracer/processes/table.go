// SPDX-License-Identifier: Apache-2.0

// Package processes decides which processes are traced, and keeps what is known of them.
package processes

import (
	"maps"
	"regexp"
	"slices"
	"sync"
)

// Kernel is the kernel half's list of processes, from pid to bpf.Process: an *ebpf.Map, or a fake
// in a test.
type Kernel interface {
	Lookup(key, value any) error
	Put(key, value any) error
	Delete(key any) error
}

// Options is what a Table needs. Without PIDs, Name and Command it traces every process. It calls
// the functions in a transaction, without a lock of its own: they must not block.
type Options struct {
	PIDs    []uint32
	Name    *regexp.Regexp // matched against procfs.Names
	Command bool           // only processes that Start enters, and their children

	Kernel    Kernel
	Adopt     func(pid, layout uint32) bool // a process begins with the layout of its parent
	Scan      func(pid uint32)              // asks for a look at the libraries of a process
	Introduce func(pid uint32)              // asks for a look at its environment
}

// Table keeps the processes that are traced, and those that were found not to be. Methods with an
// argument b are for the goroutine that has the transaction, and b is that transaction: so what
// they decide and what they tell the books is one step. The goroutine that reads the events ring
// calls them for each event; they read /proc/PID only of a process that is new. Any goroutine may
// call the other methods, in a transaction or not.
type Table struct {
	Options

	mu            sync.Mutex // guards what follows and all of Process, and Kernel's entries; never for long
	processes     map[uint32]*Process
	tombs         map[uint32]uint64 // start of ended processes
	nameless      uint64            // processes that were gone when their names were to be read
	namelessCalls uint64            // their allocations and frees
	matched       bool              // a traced process has ended
}

// NewTable returns an empty Table.
func NewTable(o Options) *Table {
	return &Table{Options: o, processes: map[uint32]*Process{}, tombs: map[uint32]uint64{}}
}

// Everyone reports whether processes are traced that nobody has looked at yet.
func (t *Table) Everyone() bool { return len(t.PIDs) == 0 && !t.Command }

// get returns a process, nil for one that is not known.
func (t *Table) get(pid uint32) *Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.processes[pid]
}

// is reports whether a process is known, and a condition holds for it; the condition is asked with
// mu held.
func (t *Table) is(pid uint32, condition func(*Process) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.processes[pid]
	return p != nil && condition(p)
}

// IsKnown reports whether the table has a process, traced or not.
func (t *Table) IsKnown(pid uint32) bool { return t.is(pid, func(*Process) bool { return true }) }

// IsTraced reports whether a process is traced.
func (t *Table) IsTraced(pid uint32) bool {
	return t.is(pid, func(p *Process) bool { return p.traced })
}

// IsHeld reports whether a process is the command, or a child of it.
func (t *Table) IsHeld(pid uint32) bool { return t.is(pid, func(p *Process) bool { return p.held }) }

// IsBooked reports whether the books know a process that runs.
func (t *Table) IsBooked(pid uint32) bool {
	return t.is(pid, func(p *Process) bool { return p.booked })
}

// UsesCUDA reports whether a traced process maps a CUDA library.
func (t *Table) UsesCUDA(pid uint32) bool {
	return t.is(pid, func(p *Process) bool { return p.traced && p.cuda })
}

// HasAllocated reports whether an allocation of a process was booked.
func (t *Table) HasAllocated(pid uint32) bool {
	return t.is(pid, func(p *Process) bool { return p.allocated })
}

// Changed returns the time of the latest event of a process, and false for one that is not known.
func (t *Table) Changed(pid uint32) (at uint64, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.processes[pid]; p != nil {
		return p.changed, true
	}
	return 0, false
}

// Traced returns the processes that are in the books and still run, in order.
func (t *Table) Traced() (pids []uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for pid, p := range t.processes {
		if p.traced && p.cuda {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// AnyTraced reports whether a traced process runs, whether it uses CUDA or not.
func (t *Table) AnyTraced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.processes {
		if p.traced {
			return true
		}
	}
	return false
}

// Len returns how many processes are known.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.processes)
}

// all returns the processes that are known, by pid.
func (t *Table) all() map[uint32]*Process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.processes)
}
