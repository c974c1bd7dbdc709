// SPDX-License-Identifier: Apache-2.0

// Package survivors proves which blocks of PyTorch's allocators were not freed in a time in which
// none of their reports were seen. What it does not prove may have been freed, and its address may
// be another block's.
//
// # The proof
//
// Each allocator counts, for its pools of small and of large blocks (private ones included), how
// many blocks and bytes it has ever freed. Both counts only grow, and PyTorch's free adds to them
// before it reports. The first reading is taken before the probe leaves, the second after it is
// back. So each free whose report was not seen is in the difference, whoever called it, and whether
// or not the allocator was at rest:
//
//   - If no block of a kind of pools was freed between the readings, none was freed unseen: all have stayed.
//   - A block with more bytes than were freed has stayed.
//
// Where a program sets the counters back (torch.cuda.reset_accumulated_memory_stats()) their
// differences prove nothing. Afterwards their current values do not follow from the sums any more,
// unless the allocator had no segment then. In that case all segments were taken from the driver
// later: the ledger knows when, and ends blocks in such segments.
//
// # What proves nothing
//
// A block that was freed and given out again looks as before: the same Block object, with the same
// address, size and requested size, in the same table. Only its gc_count_base differs, and PyTorch
// counts that only with garbage_collection_threshold and a memory fraction set; elsewhere it stays
// 0. A holder that is the same Python object with the same storage proves nothing either: storages
// are resized to 0 and back (FSDP does so each step), and a new object may take the address of one
// that has gone.
package survivors

import (
	"github.com/vramprof/vramprof/tracer/allocator"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Bounds returns how large a block may be that was freed between two readings of the counters of
// one allocator, of small and of large blocks: 0 if none was freed, ledger.Unknown if nothing is
// proven. steady reports, of both kinds of pools, whether their counters in after did not change
// while they were read.
func Bounds(before, after *allocator.Counters, steady [2]bool) (small, large uint64) {
	var bounds [2]uint64
	for i := range bounds {
		bounds[i] = bound(&before.Pools[i], &after.Pools[i])
		if !steady[i] {
			bounds[i] = ledger.Unknown
		}
	}
	return bounds[allocator.Small], bounds[allocator.Large]
}

func bound(before, after *allocator.PoolCounters) uint64 {
	if !after.Unreset() || !grew(before, after) {
		return ledger.Unknown
	}
	if after.Allocations.Freed == before.Allocations.Freed && after.Allocated.Freed == before.Allocated.Freed {
		return 0
	}
	return max(after.Allocated.Freed-before.Allocated.Freed, 1)
}

// grew reports whether no sum is less than it was.
func grew(before, after *allocator.PoolCounters) bool {
	for _, s := range [...][2]*allocator.Stat{
		{&before.Allocations, &after.Allocations}, {&before.Segments, &after.Segments},
		{&before.Allocated, &after.Allocated}, {&before.Reserved, &after.Reserved},
	} {
		if s[1].Allocated < s[0].Allocated || s[1].Freed < s[0].Freed {
			return false
		}
	}
	return true
}
