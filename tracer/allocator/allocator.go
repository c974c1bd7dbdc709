// SPDX-License-Identifier: Apache-2.0

// Package allocator reads PyTorch's CUDA allocators from outside a running process: each block
// and each counter, by the structure of its containers alone. It needs no symbols, no offsets of a
// version and no probe. A layout that does not prove itself gives an error, never a guess.
package allocator

// State is what a block is used for.
type State uint8

// States of a block, in the words of torch.cuda.memory_snapshot().
const (
	Inactive    State = iota // cached, free
	Active                   // a tensor uses it
	PendingFree              // freed, but a stream may still use it
	Unmapped                 // reserved addresses of an expandable segment, without memory
)

func (s State) String() string {
	return [...]string{"inactive", "active_allocated", "active_pending_free", "unmapped"}[s&3]
}

// PoolID identifies a pool, as PyTorch's mempool_id. Both numbers of the default pool are 0.
type PoolID [2]uint64

// Block is one block of the allocator.
type Block struct {
	Address, Size uint64
	Requested     uint64 // by the program, before rounding; equals Size before PyTorch 2.0
	Stream        uint64 // its handle
	Pool          PoolID
	Device        int
	State         State
	Small         bool // of the pool of small blocks
	Segment       int  // index in Snapshot.Segments; -1 where unmapped, or unknown in a torn walk
}

// Segment is memory that the allocator got from the driver: adjacent mapped blocks.
type Segment struct {
	Address, Size uint64
	Base          uint64 // of an expandable segment: the address of its first page; 0 for others
	Stream        uint64
	Pool          PoolID
	Device        int
	Small         bool
	Blocks        int
}

// Stat is one counter of the allocator, of all its pools.
type Stat struct{ Current, Peak, Allocated, Freed uint64 }

// Counters are those of one device, as torch.cuda.memory_stats() has them.
type Counters struct {
	Allocations, Segments, ActiveBlocks, InactiveSplits Stat
	Allocated, Reserved, Active, InactiveSplit          Stat // bytes
	Requested                                           Stat // bytes; zero before PyTorch 2.0
	Retries, OutOfMemory                                uint64
	Pools                                               [2]PoolCounters // small and large
}

// Kinds of pools, as indices.
const (
	Small = iota // blocks of at most 1 MiB
	Large
)

// PoolCounters are those of all pools of one kind, private ones included.
type PoolCounters struct{ Allocations, Segments, Allocated, Reserved Stat }

// Unreset reports whether all sums are those since the process began: each current value follows
// from them. torch.cuda.reset_accumulated_memory_stats() sets sums to 0. Afterwards they are only
// unreset if there was not even a segment then. Counters that were read while they changed may look
// reset.
func (c *PoolCounters) Unreset() bool {
	for _, s := range [...]*Stat{&c.Allocations, &c.Segments, &c.Allocated, &c.Reserved} {
		if s.Current != s.Allocated-s.Freed {
			return false
		}
	}
	return true
}

// Device is what the walk of one device found.
type Device struct {
	Index    int
	Counters Counters
	// Exact certifies the walk: the allocator's lock was free and no counter moved from its begin
	// to its end. Sums, chains and counts then agreed as well. Otherwise the device was in motion,
	// and OffBlocks and OffBytes bound how far the live blocks' number and bytes may be off.
	Exact               bool
	OffBlocks, OffBytes uint64
	// Steady reports, for pools of small and of large blocks, whether Counters.Pools were the same
	// in the first and the last read.
	Steady [2]bool
	// From and To are CLOCK_MONOTONIC in ns (tracer/clock) before the first and after the last
	// read. LockFree reports that both ends saw the lock free: then the walk, with the events from
	// From to To applied over it, is the state at To, but for a block that is all of its segment
	// and that the table of active blocks moved while it was read.
	From, To     uint64
	LockFree     bool
	Contradicted int // blocks whose neighbors disagree with them
	Linked       int // blocks that no container showed, but their neighbors: the table of active blocks moved them
	// Given is how many blocks were given out from From to To, by the counters.
	Given uint64
	// Bounded reports that the segments are right although blocks in them may not be: none came or
	// went from From to To, and they add up to the reserved bytes. True where Exact is.
	Bounded bool
}

// Cost is what a reading took.
type Cost struct{ Bytes, Calls int }

// Snapshot is the state of the allocator. Only the native backend has segments, counters, pools,
// requested sizes and states of blocks: those of another one are all active.
type Snapshot struct {
	Backend Backend
	// Superset reports that some blocks may have been freed, and none is exact: PyTorch 2.6 never
	// removes an address from the map of a pluggable allocator, with the size that it had first.
	// Another version is known by what it removes.
	Superset bool
	Blocks   []Block   // by address
	Segments []Segment // by device and address
	Devices  []Device
	Cost     Cost
}

// Exact reports whether the walks of all devices were exact, each at its own moment.
func (s *Snapshot) Exact() bool {
	for _, d := range s.Devices {
		if !d.Exact {
			return false
		}
	}
	return true
}
