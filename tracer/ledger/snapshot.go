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
	Releases  []Release // by process, then cause
	Pools     []Pool    // by process, then device and handle
	Tensors   []Tensors // by process, then device
	Objects   []Object  // by process, then kind, most first
	Sampling  SampleRate
	GPUs      []GPU     // as NVML lists them; empty without a driver
	Balances  []Balance // per process and GPU, as far as NVML knows them
	Stats     Stats
	Warnings  []string // one sentence each, without a full stop
}

// Process is one traced process: a pid between two execs or exits.
type Process struct {
	PID      uint32
	Comm     string   // at most 15 bytes, untrusted
	Exe      string   // path, untrusted
	Begin    uint64   // when it was first seen
	End      uint64   // exit or exec; 0: still running
	Replaced bool     // it ended by an exec: the pid has another program
	Devices  []string // UUID of each CUDA ordinal, nil if unknown, "" for one that is unknown
	Ordinals Ordinals // how Devices is known
	User     uint32   // its user's number plus 1; 0: unknown; NoUser: it ended before anybody could know
	Lost     uint64   // events that had no room: its figures can be too high or too low
	Beyond   []Beyond // tables of which it has used up its share
	Deduced  uint64   // bytes of allocations, freed or not, of which only the growth of NVML's figures says on which GPU they are
	Workload
	Totals []Total
}

// Workload says on whose behalf a process runs, as far as the host knows; what
// is unknown is empty. All of it is untrusted.
type Workload struct {
	Container, Pod, Namespace  string // container id, Kubernetes pod and namespace
	Job                        string // name or number of a batch job
	Rank, LocalRank, WorldSize string // of distributed training
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
	Segment      bool     // PyTorch's allocator holds these allocations and gives tensors out of them
	Tensors      uint64   // of a Segment: bytes of live tensors in it, as far as they were allocated since the attach
	Asleep       uint64   // of kind Tensor: of LiveBytes, those without physical memory; see Tensors
	Oldest       uint64   // time of the oldest live allocation; 0 without one
	Growth       int64    // live bytes now minus at half of the session
	History      []uint64 // live bytes at even steps from Begin to End, at most HistoryLen
	Peak         uint64   // most live bytes; of what is shown as one site, the sum over its parts
	Owners       []Owner  // of Kind Imported: whose memory it is, as far as they are traced; the first few
	MoreOwners   bool     // there are more
	Window       uint64   // ns that each of Cohorts stands for
	FirstWindow  uint64   // when the first of Cohorts began, ns after Begin
	Evicted      uint64   // allocations that no live figure has, as the process has used up its share of live allocations
	Crowded      uint64   // how often it was taken for a site that had no room, whose stack is lost: it sums several
	Cohorts      []Cohort // what was allocated in each window of time, from the site's first allocation to its latest, or its latest free, at most CohortLen; empty where no allocation is known
}

// Owner is a site whose memory another process imported.
type Owner struct {
	Process int // index into Snapshot.Processes
	Stack   uint64
	API     string
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
	Crowded   uint64 // as of a Site
}

// Cause says why allocations ended without a free of their own.
type Cause uint8

const (
	ContextDestroyed Cause = iota + 1 // cuCtxDestroy
	ContextReleased                   // the last reference of a primary context
	ContextWasReset                   // cuDevicePrimaryCtxReset, cudaDeviceReset
)

// Release sums the allocations of one process that ended by one cause, imported ones left out.
type Release struct {
	Process int
	Cause   Cause
	Objects uint64
	Bytes   uint64
	Time    uint64 // the latest
}

// Pool is a stream-ordered memory pool. What it holds from the driver lies
// between Used and Reserve: how much it gives back, and when, is the driver's decision.
type Pool struct {
	Process   int
	Handle    uint64 // CUmemoryPool; 0: the pool that the device has from the beginning
	Device    int32
	Objects   uint64
	Used      uint64 // bytes of live allocations
	Reserve   uint64 // highest Used since the last trim
	Threshold uint64 // bytes that it may keep unused where the program synchronizes
	Destroyed bool   // and has allocations left
}

// Object sums the driver objects that one process made from one stack. They take memory of the GPU that no call
// names: it is in Balance.Baseline or Balance.Gap, and in no sum of the books.
type Object struct {
	Process int
	Stack   uint64
	API     string
	Kind    Kind  // DriverContext, GreenContext, Module, Library or GraphExec
	Device  int32 // or UnknownDevice
	Live    uint64
	Made    uint64 // live or not
	Bytes   uint64 // that the callers named, of those that are live: the size of the code's image
	Evicted uint64 // made, but not counted as live, for want of room
	Crowded uint64 // as of a Site
	Before  uint64 // live when the Baseline was fixed: the rest came to what is unexplained
}

// Tensors is what PyTorch's allocator of one process has on one device. All is exact except Sampled, Halvings and Error:
//
//	LiveBytes   = bytes allocated - bytes freed, over all size classes
//	Older       = Allocated - LiveBytes
//	Segments    = LiveBytes of the sites with Segment on the device
//	Cached      = Segments - Tensors of these sites
//	OlderCached = Reserved - Segments - Older - (LiveBytes - Asleep - Tensors of these sites)
//	Foreign     = Baseline - (Reserved - Segments), as both were at the allocator's first report
//
// A difference below 0 is 0. What was asleep once is in Reserved, and had no memory: from then on, of Reserved - Segments no more
// counts than was older than the attach at the allocator's first report and was not unmapped since. Without an allocator's totals (of CPUDevice, or before the first
// reading) what follows from them is 0, and counts are those of the sample, weighted.
//
// Sites of kind Tensor are a sample, in which a block counts as 2^n where its class's rate had been halved n times. In each
// size class of a process and device they are weighted by what the class exactly has over what the sample has, once for what is
// live and once for what was freed, and rounded so that the live and allocated objects and bytes of the sites add up to
// those of Tensors. Where the rate was halved, neighbouring classes of which the sample has little are weighted as one. What a
// class has without a sample is in a site of Stack 0. What each class has is read once a second; between two readings the classes
// follow the sample, and add up to LiveBytes, which events tell. History and Growth are estimates: the sample's, times the weight
// of live bytes at the end. Oldest is the sample's.
type Tensors struct {
	Process   int
	Device    int32  // or CPUDevice, on which nothing but counts and Peak is known
	Allocated uint64 // as the allocator said itself in its latest event
	Reserved  uint64
	Peak      uint64 // highest Allocated since the attach; of CPUDevice the highest LiveBytes, which is looked at once a second
	PeakTime  uint64

	LiveObjects, LiveBytes   uint64 // allocated since the attach
	AllocObjects, AllocBytes uint64 // likewise, freed or not
	Sampled                  uint64 // live objects of the sample
	Halvings                 uint8  // how often the rate was halved at most, for SampleRate.Limit: of no block of at least the mean then
	Error                    uint64 // standard error of the largest site's live bytes, from the sampling

	Older       uint64             // bytes allocated before the attach and still live: Allocated - LiveBytes
	OlderFreed  [HistoryLen]uint64 // bytes allocated before the attach and freed since, at the steps of Site.History
	OlderCached uint64             // the rest of the segments that are older than the attach
	Segments    uint64             // live bytes of segments allocated since the attach
	Cached      uint64             // of those: not given out
	LargestFree uint64             // longest run of free bytes in those segments
	Asleep      uint64             // of LiveBytes: their physical memory was unmapped, and PyTorch still counts them
	OlderAsleep uint64             // of Older, likewise, at least: what is cached in older segments is taken to sleep first
	OlderMoved  uint64             // of Older: in memory that was mapped under them since, and is shown as other driver allocations
	Foreign     uint64             // bytes of Baseline that were not the allocator's: context, modules, other libraries
}

// SampleRate says how PyTorch's tensors are sampled.
type SampleRate struct {
	Mean  uint64 // one in so many bytes, on average; 0: every one
	Limit uint32 // samples a second and device: where there would be more, Mean is doubled for as long; 0: there is none
}

// GPU is one device as NVML lists it: a whole GPU or a MIG instance.
type GPU struct {
	Index  int // NVML index, PCI order; of an instance that of its GPU
	UUID   string
	Parent string // UUID of the GPU that an instance is part of; "" for a whole one
	Name   string
	Total  uint64
	Used   uint64
}

// Usage is what NVML says a process uses on one GPU.
type Usage struct {
	PID   uint32
	UUID  string
	Bytes uint64
	Rough bool // the process allocated or freed while it was read
}

// Balance compares what NVML reports for a process on one GPU with the books:
// Usage = Baseline + Live + Gap. Baseline is the usage that was there when the
// process was first seen; Live counts what is Owned. Usage and Live are as of Time.
type Balance struct {
	Process  int
	UUID     string
	Device   int32
	Usage    uint64
	Peak     uint64 // highest Usage
	Baseline uint64
	Live     uint64
	Gap      int64
	Idle     uint64 // at most this much of Gap is held unused by pools: their Reserve minus Used
	Time     uint64 // when NVML was read
	Since    int64  // bytes that were taken from the driver since then less those that were given back, as far as they are booked
	Doubt    uint64 // so much Live changed while NVML was read: it is the value in between that fits the reading before best
}

// Stats counts what the books could not take in, and why.
type Stats struct {
	Events         uint64            // applied
	Lost           uint64            // events the ring had no room for
	LostBy         map[uint32]uint64 // of those: by pid, as far as it is known; not in a Snapshot: see Process.Lost
	UnmatchedFrees uint64            // frees of addresses that were never booked (older than the attach)
	Reused         uint64            // addresses handed out again without a free that we saw
	Evicted        uint64            // allocations dropped at the ledger's limit
	UnknownSizes   uint64            // live allocations counted with 0 bytes: nothing tells their size
	Stacks         uint64            // events that wanted a stack
	NoStack        uint64            // of those: none could be taken
	Missing        map[string]uint64 // NoStack by reason; of older captures nil
	StacksBy       map[uint32]uint64 // different stacks beyond the share of their process, by pid; not in a Snapshot: see Process.Beyond
	Truncated      map[string]uint64 // stacks not walked to the end, by reason
	Torn           uint64            // stacks overwritten by a preempting thread
}
