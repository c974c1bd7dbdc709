// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/probes"
	"github.com/vramprof/vramprof/tracer/processes"
	"github.com/vramprof/vramprof/tracer/procfs"
	"github.com/vramprof/vramprof/tracer/sequence"
	"github.com/vramprof/vramprof/tracer/shares"
	"github.com/vramprof/vramprof/tracer/stacks"
	"github.com/vramprof/vramprof/tracer/torchalloc"
	"github.com/vramprof/vramprof/tracer/unwind"
)

// eviction drops what nobody uses any more. Its methods are the worker's.
type eviction struct {
	coll      *ebpf.Collection
	sequencer *sequence.Sequencer
	defects   *panics.List
	table     *processes.Table
	tensors   *torchalloc.Allocators
	shares    *shares.Shares
	ooms      *oom.Queue
	stacks    *stacks.Store
	sent      *stacks.Sent
	unwind    *unwind.Unwinder
	events    *eventReader
	discovery *discovery
	tables    *tableLoader
	losses    *losses

	later time.Duration // in a test, by how much its clock is ahead; 0
}

// evict drops what is kept of processes that have ended, of stacks that the books do not refer to
// and of files that nobody maps. What the end of a process does at once comes first: the end may
// not have been reported. It is the worker's.
func (e *eviction) evict() {
	now := time.Now().Add(e.later)
	e.forget()
	e.events.makers.Forget(procfs.HasThread)
	e.evictStacks(now)
	e.evictProcesses()
	e.unwind.Evict(now, e.hasEnded, e.stacks.ForgetFiles)
	e.discovery.ahead.Forget(now)
}

// hasEnded reports whether a process has ended and no event of it is on its way.
func (e *eviction) hasEnded(pid uint32) bool { return !e.table.IsKnown(pid) && !procfs.Exists(pid) }

// evictStacks has the kernel half forget stacks that are not in use, and drops those that it forgot
// before: see stacks.Store.Evict.
func (e *eviction) evictStacks(now time.Time) {
	inUse := map[uint64]struct{}{}
	add := func(id uint64) { inUse[id] = struct{}{} }
	if !e.stacksOfCalls(add) {
		return // next time
	}
	e.sequencer.Settle(clock.Now(), e.events.flush) // the events of calls that have returned since
	e.sequencer.StacksInUse(add)
	e.events.makers.InUse(add)
	e.dropStacks(now, inUse)
}

// dropStacks takes the next step with the stacks that are not in use.
func (e *eviction) dropStacks(now time.Time, inUse map[uint64]struct{}) {
	forget, _ := e.stacks.Evict(now, inUse)
	if len(forget) == 0 {
		return
	}
	pids := map[uint32]bool{}
	for _, s := range forget {
		e.sent.Forget(s.ID)
		pids[s.PID] = true
	}
	// Not before: else a walk would find the stack and be remembered, and none would send it again.
	tx := e.sequencer.Begin()
	defer tx.Done()
	for pid := range pids {
		e.table.WalkAnew(tx, pid)
	}
}

// stacksOfCalls adds the stacks of calls that have begun and not returned: a call may take minutes.
// It returns false if it could not read them all.
func (e *eviction) stacksOfCalls(add func(id uint64)) bool {
	threads := e.coll.Maps["threads"]
	var key uint64
	var thread []byte // struct thread, which begins with the stack
	i := threads.Iterate()
	for i.Next(&key, &thread) {
		add(binary.NativeEndian.Uint64(thread))
	}
	return i.Err() == nil
}

// evictProcesses drops what is counted by pid of processes that have ended, when the books have it.
func (e *eviction) evictProcesses() {
	e.releaseEnded()
	ended := map[uint32]bool{}
	events, stacks := e.shares.Lost()
	_, errors := e.ooms.Lost()
	for _, by := range []map[uint32]uint64{events, stacks, errors, e.stacks.Lost(), e.stacks.Unplaced()} {
		for pid := range by {
			ended[pid] = ended[pid] || e.hasEnded(pid)
		}
	}
	e.ooms.ForgetProcesses(ended)
	tx := e.sequencer.Begin()
	defer tx.Done()
	tx.Tell(e.losses.stats())
	e.shares.ForgetProcesses(ended)
	e.stacks.ForgetProcesses(ended)
}

// releaseEnded takes processes off the kernel half's list that it has from their parents, and whose
// end nobody was told of: the ring was full.
func (e *eviction) releaseEnded() {
	list := e.coll.Maps["processes"]
	ended := map[uint32]bpf.Process{}
	var pid uint32
	var entry bpf.Process
	for i := list.Iterate(); i.Next(&pid, &entry); {
		if e.hasEnded(pid) {
			ended[pid] = entry
		}
	}
	for pid, before := range ended {
		if list.Lookup(pid, &entry) == nil && entry.Seed == before.Seed && e.hasEnded(pid) {
			_ = list.Delete(pid)
		}
	}
}

// forget drops what was kept for the last events of processes that have ended. It is the worker's.
func (e *eviction) forget() {
	defer e.defects.Recovered("a look at processes")
	e.tables.forget()
	probes.ForgetContexts(e.coll.Maps["contexts"], e.coll.Maps["captures"], e.table.IsKnown)
	e.tensors.Forget()
	e.shares.Forget(e.table.IsKnown)
	e.stacks.ForgetPerfMaps(e.hasEnded)
	if err := e.discovery.retire(); err != nil {
		e.sequencer.Warn(0, err.Error())
	}
}

// Sizes is how much a Tracer keeps that grows and shrinks with what it traces.
type Sizes struct {
	Stacks                       int
	Processes                    int // that are known, traced or not
	Files                        int // with names, which are open
	Mapped, Layouts, Rows, Rules int // files with unwind tables, layouts, rows of the tables and their rules
	KernelProcesses, KernelWalks int // of the kernel half's maps
	KernelStacks, KernelThreads  int
	KernelShares, KernelMappings int
	KernelFiles                  int
}

// Sizes counts what is kept. It takes long: it is for tests and for measuring.
func (t *Tracer) Sizes() Sizes {
	tables := t.unwind.Sizes()
	s := Sizes{
		Stacks: t.stacks.Len(), Processes: t.table.Len(), Files: t.stacks.OpenFiles(),
		Mapped: tables.Files, Layouts: tables.Layouts, Rows: tables.Rows, Rules: tables.Rules,
		KernelProcesses: entriesOf(t.coll.Maps["processes"]), KernelWalks: entriesOf(t.coll.Maps["walks"]),
		KernelStacks: t.eviction.sent.Len(), KernelThreads: entriesOf(t.coll.Maps["threads"]),
		KernelShares: entriesOf(t.coll.Maps["shares"]), KernelMappings: entriesOf(t.unwind.Maps()["pid_page_to_mapping_info"]),
	}
	for _, m := range t.unwind.Maps() {
		if m.Type() == ebpf.HashOfMaps {
			s.KernelFiles += entriesOf(m)
		}
	}
	return s
}

// entriesOf counts the entries of a map.
func entriesOf(m *ebpf.Map) (n int) {
	key := make([]byte, m.KeySize())
	for err := m.NextKey(nil, key); err == nil; err = m.NextKey(key, key) {
		n++
	}
	return n
}
