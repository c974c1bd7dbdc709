// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// allocatorBits is how many bits of a block's key are its allocator's number; see
// block_key of bpf/tensor.h.
const allocatorBits = 22

// owner is whose blocks have a certain allocator's number.
type owner struct {
	pid    uint32
	device int32
	near   []ledger.Block // those that the kernel half keeps with the allocator
}

// newOwner takes what it needs of an allocator of a process.
func newOwner(pid uint32, device int32, value *bpf.TensorDevice) owner {
	o := owner{pid: pid, device: device}
	for i := range value.Near {
		if b := &value.Near[i]; b.Address != 0 && b.Value != 0 {
			o.near = append(o.near, ledger.Block{Address: b.Address, Size: b.Value >> 1, Device: device})
		}
	}
	return o
}

// eachBlock visits all blocks that the kernel half does not keep with their allocator, while it changes them.
// It takes about 0.5 s for a million.
func (t *Tracer) eachBlock(visit func(number uint32, key, value uint64)) {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]uint64, 8192), make([]uint64, 8192)
	for {
		n, err := t.coll.Maps["blocks"].BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			visit(uint32(keys[i]&(1<<allocatorBits-1)), keys[i], values[i])
		}
		if err != nil {
			if !errors.Is(err, ebpf.ErrKeyNotExist) { // that was the last batch
				t.blocksUnread.Store(true)
			}
			return
		}
	}
}

// blocksOf collects the live blocks of some allocators, by process.
func (t *Tracer) blocksOf(owners map[uint32]owner) map[uint32][]ledger.Block {
	list := map[uint32][]ledger.Block{}
	if len(owners) == 0 {
		return list
	}
	for _, o := range owners {
		list[o.pid] = append(list[o.pid], o.near...) // nil also of one that has none any more
	}
	t.eachBlock(func(number uint32, key, value uint64) {
		if o, ok := owners[number]; ok {
			list[o.pid] = append(list[o.pid], ledger.Block{Address: key >> allocatorBits << 6, Size: value >> 1, Device: o.device})
		}
	})
	return list
}

// blockOwners lists the allocators on GPUs whose blocks a snapshot needs; t.mu is held.
func (t *Tracer) blockOwners() map[uint32]owner {
	owners := maps.Clone(t.leftBlocks)
	t.eachAllocator(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if p := t.processes[key.Pid]; p != nil && p.traced && device >= 0 {
			owners[value.Number] = newOwner(key.Pid, device, value)
		}
	})
	return owners
}

// eachAllocator visits what the kernel half has of allocators.
func (t *Tracer) eachAllocator(visit func(key bpf.TensorKey, value *bpf.TensorDevice, device int32)) {
	var key bpf.TensorKey
	var value bpf.TensorDevice
	for i := t.coll.Maps["tensor_devices"].Iterate(); i.Next(&key, &value); {
		if device, ok := tensorDevice(int(key.Device&0xff), int(int8(key.Device>>8))); ok {
			visit(key, &value, device)
		}
	}
}

// liveBlocks is how many blocks the kernel half knows, as its totals say.
func (t *Tracer) liveBlocks() (sum uint64) {
	t.eachAllocator(func(_ bpf.TensorKey, value *bpf.TensorDevice, _ int32) {
		for i := range value.Classes {
			sum += value.Classes[i].Allocs - value.Classes[i].Frees
		}
	})
	return sum
}

// leaveBlocks takes the last totals of a process that has ended, and has its
// blocks placed and removed; t.mu is held.
func (t *Tracer) leaveBlocks(p *process) {
	if !p.torch {
		return
	}
	t.readTensors(p.pid)
	t.dropAllocators(func(pid uint32, _ uint64) bool { return pid == p.pid })
	t.jobs.add(job{kind: jobBlocks})
}

// dropAllocators has the kernel half begin anew with the allocators of some
// processes, and leaves their blocks to be placed and removed; t.mu is held.
func (t *Tracer) dropAllocators(of func(pid uint32, latest uint64) bool) (dropped bool) {
	var keys []bpf.TensorKey
	t.eachAllocator(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if of(key.Pid, value.Latest) {
			keys = append(keys, key)
			t.leftBlocks[value.Number] = newOwner(key.Pid, device, value)
		}
	})
	for i := range keys {
		_ = t.coll.Maps["tensor_devices"].Delete(&keys[i])
	}
	return len(keys) > 0
}

// placeLeftBlocks gives the books the last blocks of processes that have ended, and
// removes them. A process that has begun since with the same pid has blocks of its own.
func (t *Tracer) placeLeftBlocks() {
	t.mu.Lock()
	left := maps.Clone(t.leftBlocks)
	t.mu.Unlock()
	onGPUs := maps.Clone(left)
	maps.DeleteFunc(onGPUs, func(_ uint32, o owner) bool { return o.device < 0 })
	t.bookLeftBlocks(left, t.blocksOf(onGPUs))
	if len(left) == 0 {
		return
	}
	var dead []uint64
	t.eachBlock(func(number uint32, key, _ uint64) {
		if _, ok := left[number]; ok {
			dead = append(dead, key)
		}
	})
	for i := range dead {
		_ = t.coll.Maps["blocks"].Delete(&dead[i])
	}
}

func (t *Tracer) bookLeftBlocks(left map[uint32]owner, blocks map[uint32][]ledger.Block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for number := range left {
		delete(t.leftBlocks, number)
	}
	for pid, list := range blocks {
		if p := t.processes[pid]; p == nil || !p.booked {
			t.books.SetBlocks(pid, list)
		}
	}
}

// forgetBlocks removes what the kernel half has of processes that are gone, or
// that turned out not to be meant.
func (t *Tracer) forgetBlocks() {
	t.mu.Lock()
	dropped := t.dropAllocators(func(pid uint32, latest uint64) bool {
		if p := t.processes[pid]; p != nil {
			return !p.traced
		}
		return isGone(pid, latest) // else its first events are on their way
	})
	t.mu.Unlock()
	if dropped {
		t.placeLeftBlocks()
	}
}
