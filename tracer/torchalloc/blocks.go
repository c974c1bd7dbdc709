// SPDX-License-Identifier: Apache-2.0

package torchalloc

import (
	"errors"
	"maps"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Owners is whose blocks have which allocator's number, as of a moment.
type Owners map[uint32]owner

type owner struct {
	pid    uint32
	device int32
	near   []ledger.Block // those that the kernel half keeps in a table of the allocator's own
	far    bool           // others may be in the map of all
	room   uint64         // that it has there
}

// Owners returns the allocators on GPUs whose blocks a snapshot needs. It is for the goroutine that
// has the transaction.
func (a *Allocators) Owners() Owners {
	a.mu.Lock()
	owners := maps.Clone(a.left)
	a.mu.Unlock()
	a.each(func(key bpf.TensorKey, value *bpf.TensorDevice, device int32) {
		if device >= 0 && a.Processes.IsTraced(key.Pid) {
			owners[value.Number] = a.owner(key.Pid, device, value)
		}
	})
	return owners
}

// owner returns what is needed of an allocator of a process.
func (a *Allocators) owner(pid uint32, device int32, value *bpf.TensorDevice) owner {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := owner{pid: pid, device: device, far: value.Far > 0, room: value.Room}
	near, _ := a.maps.list()
	if near == nil || value.Number >= near.MaxEntries() || near.Lookup(value.Number, &a.near) != nil {
		return o
	}
	for i := range a.near.Block {
		if b := &a.near.Block[i]; b.Address != 0 && b.Value != 0 {
			o.near = append(o.near, ledger.Block{Address: b.Address, Size: bpf.BlockSize(b.Value), Device: device, Sampled: bpf.IsSampled(b.Value)})
		}
	}
	return o
}

// Of returns the owners that belong to a process.
func (o Owners) Of(pid uint32) Owners {
	of := Owners{}
	for number, x := range o {
		if x.pid == pid {
			of[number] = x
		}
	}
	return of
}

// Count returns how many blocks the kernel half knows, as its totals say.
func (a *Allocators) Count() (sum uint64) {
	a.each(func(_ bpf.TensorKey, value *bpf.TensorDevice, _ int32) {
		for i := range value.Classes {
			sum += value.Classes[i].Allocs - value.Classes[i].Frees
		}
	})
	return sum
}

// Blocks collects the live blocks of allocators on GPUs, by process.
func (a *Allocators) Blocks(owners Owners) map[uint32][]ledger.Block {
	list, _ := a.collect(owners)
	return list
}

// Unplaced reports whether the kernel half's blocks could not be read to the end at any time.
func (a *Allocators) Unplaced() bool { return a.unplaced.Load() }

// collect collects the live blocks of some allocators: those on GPUs by process, and the keys of
// all in the map of all blocks.
func (a *Allocators) collect(owners Owners) (list map[uint32][]ledger.Block, keys []uint64) {
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
	a.eachFar(func(number uint32, key, value uint64) {
		o, ok := owners[number]
		if !ok {
			return
		}
		keys = append(keys, key)
		if o.device >= 0 {
			_, address := bpf.SplitBlockKey(key)
			list[o.pid] = append(list[o.pid], ledger.Block{Address: address, Size: bpf.BlockSize(value), Device: o.device, Sampled: bpf.IsSampled(value)})
		}
	})
	return list, keys
}

// eachFar visits all blocks that the kernel half does not keep with their allocator, while it
// changes them. It takes about 0.5 s for a million.
func (a *Allocators) eachFar(visit func(number uint32, key, value uint64)) {
	_, far := a.maps.list()
	keys, values := make([]uint64, 8192), make([]uint64, 8192)
	for _, m := range far {
		var cursor ebpf.MapBatchCursor
		var err error
		for n := 0; err == nil; {
			n, err = m.BatchLookup(&cursor, keys, values, nil)
			for i := range n {
				number, _ := bpf.SplitBlockKey(keys[i])
				visit(number, keys[i], values[i])
			}
		}
		if !errors.Is(err, ebpf.ErrKeyNotExist) { // that was the last batch
			a.unplaced.Store(true)
		}
	}
}
