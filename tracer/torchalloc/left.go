// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"maps"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Leave has the books take the last totals of a process that has ended, or runs another program
// now, and leaves its blocks to PlaceLeft. It reports whether there may be any.
func (a *Allocators) Leave(b ledger.Books, pid uint32) bool {
	a.mu.Lock()
	p := a.processes[pid]
	var allocators []bpf.TensorKey
	if p != nil && p.reports {
		allocators = p.allocators
	}
	a.mu.Unlock()
	if len(allocators) > 0 {
		a.readLast(b, allocators)
	}
	for _, key := range allocators {
		a.drop(key, true)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.processes, pid)
	return len(allocators) > 0
}

// Drop has the kernel half begin anew with the allocator that sent an event, as its process is not
// traced.
func (a *Allocators) Drop(e *bpf.Event) { a.drop(keyOf(e), false) }

// drop has the kernel half begin anew with an allocator, and leaves its blocks to be placed and
// removed. One whose process has not ended may be about to report another one.
func (a *Allocators) drop(key bpf.TensorKey, ended bool) {
	device, ok := deviceOf(key)
	var value bpf.TensorDevice
	if a.Details {
		dropDetails(a.Maps, key)
	}
	if m := a.mapOf(key); !ok || m.Lookup(&key, &value) != nil || m.Delete(&key) != nil || value.Number == bpf.NoNumber {
		return
	}
	o := a.owner(key.Pid, device, &value)
	o.far = o.far || !ended
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left[value.Number] = o
}

// PlaceLeft has the books take the last blocks of processes that have ended, removes them, and
// gives back the numbers of their allocators. A process that has begun since with the same pid has
// blocks of its own.
func (a *Allocators) PlaceLeft() {
	a.mu.Lock()
	left := maps.Clone(a.left)
	a.mu.Unlock()
	if len(left) == 0 {
		return
	}
	blocks, keys := a.collect(left)
	a.bookLeft(left, blocks)
	_, far := a.maps.list()
	for i := range keys {
		for _, m := range far {
			_ = m.Delete(&keys[i])
		}
	}
	for number, o := range left {
		a.freeNumber(number)
		a.LeaveRoom(o.room)
	}
}

func (a *Allocators) bookLeft(left Owners, blocks map[uint32][]ledger.Block) {
	tx := a.Sequencer.Begin()
	defer tx.Done()
	a.mu.Lock()
	for number := range left {
		delete(a.left, number)
	}
	a.mu.Unlock()
	for pid, list := range blocks {
		if !a.Processes.IsBooked(pid) {
			tx.Tell(ledger.BlockList{PID: pid, Blocks: list})
		}
	}
}

// Left returns how many allocators of processes that have ended still have blocks to be placed.
func (a *Allocators) Left() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.left)
}

// Forget removes what the kernel half has of processes that are gone, or that turned out not to be
// traced.
func (a *Allocators) Forget() {
	if a.dropForgotten() {
		a.PlaceLeft()
	}
}

func (a *Allocators) dropForgotten() bool {
	tx := a.Sequencer.Begin()
	defer tx.Done()
	var keys []bpf.TensorKey
	a.each(func(key bpf.TensorKey, value *bpf.TensorDevice, _ int32) {
		known := a.Processes.IsKnown(key.Pid)
		if known && !a.Processes.IsTraced(key.Pid) || !known && procfs.IsGone(key.Pid, value.Latest) { // else its first events are on their way
			keys = append(keys, key)
		}
	})
	for _, key := range keys {
		a.drop(key, false)
	}
	return len(keys) > 0
}
