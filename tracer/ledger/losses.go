// SPDX-License-Identifier: Apache-2.0

package ledger

// Reasons in Stats.LostFor. They are codes, which captures, JSON and metrics keep; captures of older
// versions have sentences instead. Package report has the sentences.
const (
	LostBuffersFull    = "buffers_full"        // of events from the kernel
	LostShareUsed      = "share_of_buffers"    // the process's share of them was used
	LostTablesFull     = "tables_full"         // of threads or allocators, in the kernel
	LostNoMemory       = "kernel_memory"       // for the state of a thread or allocator
	LostTooNested      = "too_many_nested"     // traced calls
	LostUnreadable     = "unreadable_results"  // the memory with the call's results
	LostUndecodable    = "undecodable"         // it could not be decoded or booked
	LostSkipped        = "program_not_run"     // the kernel skipped the probe's program
	LostNoRoomInLedger = "no_room_for_process" // the ledger's own
)

// losses has what was lost since the attach, by the latest counters of the kernel half.
type losses struct {
	events   map[uint32]uint64 // Stats.LostBy
	stacks   map[uint32]uint64 // Stats.StacksBy
	homeless uint64            // events of processes beyond the limit
}

func copyCounts(m map[string]uint64) map[string]uint64 {
	if len(m) == 0 {
		return nil
	}
	c := make(map[string]uint64, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}
