// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// owner is whose blocks have a certain allocator's number.
type owner struct {
	pid    uint32
	device int32
	near   []ledger.Block // those that the kernel half keeps in a table of the allocator's own
	far    bool           // others may be in the map of all
	room   uint64         // that it has there
}

// ownerOfBlocks takes what it needs of an allocator of a process.
func (t *Tracer) ownerOfBlocks(pid uint32, device int32, value *bpf.TensorDevice) owner {
	o := owner{pid: pid, device: device, far: value.Far > 0, room: value.Room}
	near := t.coll.Maps["near_blocks"]
	if value.Number >= near.MaxEntries() || near.Lookup(value.Number, &t.near) != nil {
		return o
	}
	for i := range t.near.Block {
		if b := &t.near.Block[i]; b.Address != 0 && b.Value != 0 {
			o.near = append(o.near, ledger.Block{Address: b.Address, Size: bpf.BlockSize(b.Value), Device: device})
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
			number, _ := bpf.SplitBlockKey(keys[i])
			visit(number, keys[i], values[i])
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
	list, _ := t.collectBlocks(owners)
	return list
}

// collectBlocks collects the live blocks of some allocators, by process those of GPUs, and all keys in the map of all blocks.
func (t *Tracer) collectBlocks(owners map[uint32]owner) (list map[uint32][]ledger.Block, keys []uint64) {
	list = map[uint32][]ledger.Block{}
	far := false
	for _, o := range owners {
		far = far || o.far
		if o.device >= 0 {
			list[o.pid] = append(list[o.pid], o.near...) // nil also of one that has none any more
		}
	}
	if !far {
		return list, nil
	}
	t.eachBlock(func(number uint32, key, value uint64) {
		o, ok := owners[number]
		if !ok {
			return
		}
		keys = append(keys, key)
		if o.device >= 0 {
			_, address := bpf.SplitBlockKey(key)
			list[o.pid] = append(list[o.pid], ledger.Block{Address: address, Size: bpf.BlockSize(value), Device: o.device})
		}
	})
	return list, keys
}

// blockOwners lists the allocators on GPUs whose blocks a snapshot needs; in a turn.
func (t *Tracer) blockOwners() map[uint32]owner {
	owners := maps.Clone(t.leftBlocks)
	t.eachAllocator(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if p := t.processes[key.Pid]; p != nil && p.traced && device >= 0 {
			owners[value.Number] = t.ownerOfBlocks(key.Pid, device, value)
		}
	})
	return owners
}

// eachAllocator visits what the kernel half has of allocators.
func (t *Tracer) eachAllocator(visit func(key bpf.TensorKey, value *bpf.TensorDevice, device int32)) {
	for _, name := range [...]string{gpuAllocators, hostAllocators} {
		var key bpf.TensorKey
		var value bpf.TensorDevice
		for i := t.coll.Maps[name].Iterate(); i.Next(&key, &value); {
			if device, ok := deviceOf(key); ok && value.Number != bpf.NoNumber {
				visit(key, &value, device)
			}
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
// blocks placed and removed; in a turn.
func (t *Tracer) leaveBlocks(p *process) {
	if !p.torch {
		return
	}
	t.readLast(p)
	for _, key := range p.allocators {
		t.dropAllocator(key, true)
	}
	p.allocators = nil
	t.jobs.add(job{kind: jobBlocks})
}

// dropAllocator has the kernel half begin anew with an allocator, and leaves its blocks to be placed and
// removed. One that has not ended may be about to report another one; in a turn.
func (t *Tracer) dropAllocator(key bpf.TensorKey, ended bool) {
	device, ok := deviceOf(key)
	var value bpf.TensorDevice
	if m := t.allocatorsLike(key); !ok || m.Lookup(&key, &value) != nil || m.Delete(&key) != nil || value.Number == bpf.NoNumber {
		return
	}
	o := t.ownerOfBlocks(key.Pid, device, &value)
	o.far = o.far || !ended
	t.leftBlocks[value.Number] = o
}

// placeLeftBlocks gives the books the last blocks of processes that have ended, removes
// them, and gives their allocators' numbers back. A process that has begun since with the same pid has blocks of its own.
func (t *Tracer) placeLeftBlocks() {
	t.desk.Take()
	left := maps.Clone(t.leftBlocks)
	t.turn.Done()
	if len(left) == 0 {
		return
	}
	blocks, keys := t.collectBlocks(left)
	t.bookLeftBlocks(left, blocks)
	for i := range keys {
		_ = t.coll.Maps["blocks"].Delete(&keys[i])
	}
	for number, o := range left {
		t.freeNumber(number)
		t.shares.leaveRoom(o.room)
	}
}

func (t *Tracer) bookLeftBlocks(left map[uint32]owner, blocks map[uint32][]ledger.Block) {
	t.desk.Take()
	defer t.turn.Done()
	for number := range left {
		delete(t.leftBlocks, number)
	}
	for pid, list := range blocks {
		if p := t.processes[pid]; p == nil || !p.booked {
			t.turn.Tell(ledger.BlockList{PID: pid, Blocks: list})
		}
	}
}

// forgetBlocks removes what the kernel half has of processes that are gone, or
// that turned out not to be meant.
func (t *Tracer) forgetBlocks() {
	t.desk.Take()
	var keys []bpf.TensorKey
	t.eachAllocator(func(key bpf.TensorKey, value *bpf.TensorDevice, _ int32) {
		if p := t.processes[key.Pid]; p != nil && !p.traced || p == nil && procfs.IsGone(key.Pid, value.Latest) { // else its first events are on their way
			keys = append(keys, key)
		}
	})
	for _, key := range keys {
		t.dropAllocator(key, false)
	}
	t.turn.Done()
	if len(keys) > 0 {
		t.placeLeftBlocks()
	}
}
