// SPDX-License-Identifier: Apache-2.0

package ledger

// Reasons in Stats.LostFor. They are codes, which captures, JSON and metrics keep; captures of
// older versions have sentences instead. Package report has the sentences.
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

// TensorCost is how much of the time of traced threads the probe on PyTorch's reports of tensors
// takes. PyTorch reports in the thread that allocates or frees, mostly one thread at a time, so the
// reports of a process count as those of one thread: a process that allocates in several threads at
// once loses less in each of them.
type TensorCost struct {
	// Price is how long a report delays its thread, in ns, without a stack trace: as measured at
	// the start on this machine. 0: it is not known, and neither are the shares.
	Price   uint64
	Session CostShare // of the process with the highest share since its first report
	Highest CostShare // the highest of a process within 10 s, or less at its begin
	Latest  CostShare // the highest in the latest 10 s
	Budget  uint64    // limit of the share, in millionths; 0: none

	// Away is how long the process AwayPID was not traced because of Budget, in ns: the longest of
	// Paused processes. In captures of older versions it counts for all processes, and AwayPID and
	// Paused are 0.
	Away    uint64
	AwayPID uint32
	Paused  uint32
}

// CostShare is what the reports of a process cost in some time.
type CostShare struct {
	PID     uint32 // 0: no process reported tensors
	Reports uint64 // blocks that were allocated or freed
	Time    uint64 // that they took, in ns
	Span    uint64 // in which they came, in ns
}

// Share returns the part of the time that the reports took; 0 if there were none.
func (c CostShare) Share() float64 {
	if c.Span == 0 {
		return 0
	}
	return float64(c.Time) / float64(c.Span)
}

// PerSecond returns how many reports came per second.
func (c CostShare) PerSecond() float64 {
	if c.Span == 0 {
		return 0
	}
	return float64(c.Reports) * 1e9 / float64(c.Span)
}
