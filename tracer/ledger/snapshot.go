// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Snapshot is an immutable copy of the books. All times are ns of
// CLOCK_MONOTONIC unless their type is time.Time; all sizes are bytes.
type Snapshot struct {
	Host      string
	Begin     uint64    // when tracing began
	End       uint64    // when the snapshot was taken
	Wall      time.Time // wall clock time of End
	Processes []Process // by PID, then Begin
	Sites     []Site    // by live bytes, largest first; ties by process, stack, API
	Failures  []Failure // by count, largest first
	GPUs      []GPU     // as NVML lists them; empty without a driver
	Balances  []Balance // per process and GPU, as far as NVML knows them
	Stats     Stats
	Warnings  []string // one sentence each, without a full stop
}

// Process is one traced process: a pid between two execs or exits.
type Process struct {
	PID     uint32
	Comm    string   // at most 15 bytes, untrusted
	Exe     string   // path, untrusted
	Begin   uint64   // when it was first seen
	End     uint64   // exit or exec; 0: still running
	Devices []string // UUID of each CUDA ordinal, nil if unknown
	Totals  []Total
}

// Total sums the allocations of one process on one device and of one kind.
type Total struct {
	Device       int32
	Kind         Kind
	LiveObjects  uint64
	LiveBytes    uint64
	AllocObjects uint64
	AllocBytes   uint64
	PeakBytes    uint64 // highest LiveBytes since Begin
	PeakTime     uint64
}

// Site sums the allocations of one process and stack.
type Site struct {
	Process      int // index into Snapshot.Processes
	Stack        uint64
	API          string
	Kind         Kind
	Device       int32 // CUDA ordinal or UnknownDevice
	LiveObjects  uint64
	LiveBytes    uint64
	AllocObjects uint64
	AllocBytes   uint64
	Oldest       uint64   // time of the oldest live allocation; 0 without one
	Growth       int64    // live bytes now minus at half of the session
	History      []uint64 // live bytes at even steps from Begin to End, at most HistoryLen
}

// Failure sums the failed allocations of one site by result code.
type Failure struct {
	Process   int
	Stack     uint64
	API       string
	Kind      Kind
	Device    int32
	Result    int32
	Count     uint64
	Bytes     uint64 // sum of the sizes asked for
	LastBytes uint64
	LastTime  uint64
}

// GPU is one device as NVML lists it.
type GPU struct {
	Index int // NVML index, PCI order
	UUID  string
	Name  string
	Total uint64
	Used  uint64
}

// Usage is what NVML says a process uses on one GPU.
type Usage struct {
	PID   uint32
	UUID  string
	Bytes uint64
}

// Balance compares what NVML reports for a process on one GPU with the books:
// Usage = Baseline + Live + Gap. Baseline is the usage that was there when the
// process was first seen; Live counts device and managed memory. For a process that has ended,
// Usage and Live are those of the last reading before its end.
type Balance struct {
	Process  int
	UUID     string
	Device   int32
	Usage    uint64
	Peak     uint64 // highest Usage
	Baseline uint64
	Live     uint64
	Gap      int64
}

// Stats counts what the books could not take in, and why.
type Stats struct {
	Events         uint64            // applied
	Lost           uint64            // events the ring had no room for
	UnmatchedFrees uint64            // frees of addresses that were never booked (older than the attach)
	Reused         uint64            // addresses handed out again without a free that we saw
	Evicted        uint64            // allocations dropped at the ledger's limit
	Stacks         uint64            // events that wanted a stack
	NoStack        uint64            // of those: none could be taken (tables not loaded yet, no room)
	Truncated      map[string]uint64 // stacks not walked to the end, by reason
	Torn           uint64            // stacks overwritten by a preempting thread
}
