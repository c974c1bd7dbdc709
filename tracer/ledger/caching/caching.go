// SPDX-License-Identifier: Apache-2.0

// Package caching describes the state of PyTorch's caching allocators, as read from outside at a
// moment, and divides their cache by what prevents its use or its return to the driver.
package caching

import (
	"cmp"
	"slices"
)

// State is what a block is used for.
type State uint8

// States of a block, in the words of torch.cuda.memory_snapshot().
const (
	Inactive    State = iota // cached, free
	Active                   // a tensor uses it
	PendingFree              // freed, but a stream may still use it
	Unmapped                 // reserved addresses of an expandable segment, without memory
)

// PoolID identifies a pool, as PyTorch's mempool_id. Both numbers of the default pool are 0.
type PoolID [2]uint64

// Private reports whether only CUDA graphs, or what names the pool, get memory of it.
func (id PoolID) Private() bool { return id != PoolID{} }

// OfGraph reports whether it is the pool of a CUDA graph: its replays use what is free there.
func (id PoolID) OfGraph() bool { return id.Private() && id[1] == 0 }

// Arena is what shares free memory: a block is only given out again to a request of its arena.
type Arena struct {
	Device int32 // CUDA ordinal
	Pool   PoolID
	Stream uint64 // its handle; 0: the default stream
	Small  bool   // requests of at most 1 MiB
}

// Block is one block of an allocator.
type Block struct {
	Address, Size uint64
	Requested     uint64 // by the program, before rounding; Size before PyTorch 2.0
	Arena         uint16 // index in Reading.Arenas
	State         State
	Older         bool // no report gave it out: it was allocated before the attach
	Sampled       bool // it has an event of its own
}

// Segment is memory that the allocator got from the driver: adjacent mapped blocks.
type Segment struct {
	Address, Size uint64
	Base          uint64 // of an expandable segment: the address of its first page; 0 for others
	Arena         uint16
}

// Stat is one counter of an allocator since the process began; Peak may have been reset by it.
type Stat struct{ Current, Peak, Allocated, Freed uint64 }

// Counters are an allocator's own.
type Counters struct {
	Allocated, Reserved, Requested Stat   // bytes; Requested is zero before PyTorch 2.0
	Allocations                    Stat   // blocks
	Retries                        uint64 // cudaMalloc failed, and was tried again without the cache
	OutOfMemory                    uint64 // errors that the program got
}

// Device is the allocator of one device.
type Device struct {
	Index int32 // CUDA ordinal
	// Exact: the allocator was at rest while it was read: all sums, chains and counts agree.
	// Settled: it was not, but its blocks and segments are those after a report of it, and their
	// sums agree; Counters are a moment older, and so is what is PendingFree. Otherwise OffBlocks
	// and OffBytes bound how far the live blocks' number and bytes may be off.
	Exact, Settled      bool
	OffBlocks, OffBytes uint64
	Counters            Counters
}

// Reading is the state of the allocators of one process. Blocks and segments are sorted by address.
type Reading struct {
	Devices  []Device
	Arenas   []Arena
	Segments []Segment
	Blocks   []Block
}

// Sure reports whether all live blocks and segments are those of one moment.
func (r *Reading) Sure() bool {
	for i := range r.Devices {
		if !r.Devices[i].Exact && !r.Devices[i].Settled {
			return false
		}
	}
	return true
}

// On returns the allocator of a device, or nil.
func (r *Reading) On(device int32) *Device {
	for i := range r.Devices {
		if r.Devices[i].Index == device {
			return &r.Devices[i]
		}
	}
	return nil
}

// BlockAt returns the block that begins at an address, or nil.
func (r *Reading) BlockAt(address uint64) *Block {
	i, ok := slices.BinarySearchFunc(r.Blocks, address, func(b Block, address uint64) int { return cmp.Compare(b.Address, address) })
	if !ok {
		return nil
	}
	return &r.Blocks[i]
}

// SegmentAt returns the segment that begins at an address, or nil.
func (r *Reading) SegmentAt(address uint64) *Segment {
	i, ok := slices.BinarySearchFunc(r.Segments, address, func(s Segment, address uint64) int { return cmp.Compare(s.Address, address) })
	if !ok {
		return nil
	}
	return &r.Segments[i]
}

// Overlaps reports whether a segment has an address from start to before end.
func (r *Reading) Overlaps(start, end uint64) bool {
	i, _ := slices.BinarySearchFunc(r.Segments, start, func(s Segment, address uint64) int { return cmp.Compare(s.Address+s.Size-1, address) })
	return i < len(r.Segments) && r.Segments[i].Address < end
}
