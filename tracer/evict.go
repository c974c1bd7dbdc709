// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"encoding/binary"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// evict drops what is kept of processes that have ended, of stacks that the books do not refer to
// and of files that nobody maps. What the end of a process does at once comes first: the end may not
// have been reported. It is the worker's.
func (t *Tracer) evict() {
	now := time.Now().Add(t.later)
	t.forget()
	t.evictStacks(now)
	t.evictProcesses()
	t.unwind.Evict(now, t.hasEnded, t.stacks.ForgetFiles)
	t.ahead.Forget(now)
}

// hasEnded reports whether a process has ended and no event of it is on its way.
func (t *Tracer) hasEnded(pid uint32) bool { return !t.table.IsKnown(pid) && !procfs.Exists(pid) }

// evictStacks has the kernel half forget stacks that are not in use, and drops those that it forgot
// before: see stacks.Store.Evict.
func (t *Tracer) evictStacks(now time.Time) {
	inUse := map[uint64]struct{}{}
	add := func(id uint64) { inUse[id] = struct{}{} }
	if !t.stacksOfCalls(add) {
		return // next time
	}
	t.sequencer.Settle(clock.Now(), func() { _ = t.events.Flush() }) // the events of calls that have returned since
	t.sequencer.StacksInUse(add)
	t.dropStacks(now, inUse)
}

// dropStacks takes the next step with the stacks that are not in use.
func (t *Tracer) dropStacks(now time.Time, inUse map[uint64]struct{}) {
	forget, _ := t.stacks.Evict(now, inUse)
	if len(forget) == 0 {
		return
	}
	pids := map[uint32]bool{}
	for _, s := range forget {
		t.sent.Forget(s.ID)
		pids[s.PID] = true
	}
	// Not before: else a walk would find the stack and be remembered, and none would send it again.
	tx := t.sequencer.Begin()
	defer tx.Done()
	for pid := range pids {
		t.table.WalkAnew(tx, pid)
	}
}

// stacksOfCalls adds the stacks of calls that have begun and not returned: a call may take minutes.
// It returns false if it could not read them all.
func (t *Tracer) stacksOfCalls(add func(id uint64)) bool {
	threads := t.coll.Maps["threads"]
	var key uint64
	var thread []byte // struct thread, which begins with the stack
	i := threads.Iterate()
	for i.Next(&key, &thread) {
		add(binary.NativeEndian.Uint64(thread))
	}
	return i.Err() == nil
}

// evictProcesses drops what is counted by pid of processes that have ended, when the books have it.
func (t *Tracer) evictProcesses() {
	t.releaseEnded()
	ended := map[uint32]bool{}
	events, stacks := t.shares.Lost()
	_, errors := t.ooms.Lost()
	for _, by := range []map[uint32]uint64{events, stacks, errors, t.stacks.Lost(), t.stacks.Unplaced()} {
		for pid := range by {
			ended[pid] = ended[pid] || t.hasEnded(pid)
		}
	}
	t.ooms.ForgetProcesses(ended)
	tx := t.sequencer.Begin()
	defer tx.Done()
	tx.Tell(t.stats())
	t.shares.ForgetProcesses(ended)
	t.stacks.ForgetProcesses(ended)
}

// releaseEnded takes processes off the kernel half's list that it has from their parents, and whose
// end nobody was told of: the ring was full.
func (t *Tracer) releaseEnded() {
	list := t.coll.Maps["processes"]
	ended := map[uint32]bpf.Process{}
	var pid uint32
	var entry bpf.Process
	for i := list.Iterate(); i.Next(&pid, &entry); {
		if t.hasEnded(pid) {
			ended[pid] = entry
		}
	}
	for pid, before := range ended {
		if list.Lookup(pid, &entry) == nil && entry.Seed == before.Seed && t.hasEnded(pid) {
			_ = list.Delete(pid)
		}
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
		KernelStacks: t.sent.Len(), KernelThreads: entriesOf(t.coll.Maps["threads"]),
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
