// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Snapshot is an immutable copy of the books. All times are ns of CLOCK_MONOTONIC unless their type
// is time.Time; all sizes are bytes.
type Snapshot struct {
	Host       string
	Unattached bool             // a process was read once, without probes: nothing is "before the attach"
	Begin      uint64           // when the session began
	Opened     uint64           // when the capture began, if an earlier one has its session's begin; else 0
	End        uint64           // when the snapshot was taken
	Wall       time.Time        // wall clock time of End
	Processes  []Process        // by PID, then Begin
	Sites      []Site           // by live bytes, largest first; ties by process, stack, API
	Failures   []Failure        // by count, largest first
	Releases   []Release        // by process, then cause
	Pools      []Pool           // by process, then device and handle
	Tensors    []Tensors        // by process, then device
	Objects    []Object         // by process, then kind, largest count first
	Walks      []Walked         // by process, then time
	Peaks      []Peak           // by process, of those that have ended; nil without AddPeaks
	Stuck      []Stuck          // by process, then device; nil without AddStuck
	Caches     []AllocatorCache // by process, then device; of allocators that were read from outside
	Highest    *Snapshot        // see AddHighest; nil: as this one
	Sampling   SampleRate
	GPUs       []GPU     // as NVML lists them; empty without a driver
	Balances   []Balance // per process and GPU that NVML lists
	System     []System  // by process, then UUID
	Stats      Stats
	Forgotten  Forgotten
	Warnings   []string // one sentence each, without a full stop
}

// Process is one traced process: a pid between two execs or exits.
type Process struct {
	PID      uint32
	Comm     string   // at most 15 bytes, untrusted
	Exe      string   // path, untrusted
	Begin    uint64   // when it was first seen
	End      uint64   // exit or exec; 0: still running
	Replaced bool     // it ended by an exec: the pid runs another program
	OwnRoot  bool     // it has a file system of its own: its paths are below /proc/PID/root for the tracer
	Devices  []string // UUID of each CUDA ordinal, nil if unknown, "" for one that is unknown
	Ordinals Ordinals // the evidence for Devices
	User     uint32   // its user id plus 1; 0: unknown; NoUser: it ended before its user was known
	Lost     uint64   // lost events: its figures can be too high or too low
	Beyond   []Beyond // tables whose share it has used up
	Folded   uint64   // sites that lost their stack because memory was scarce
	// Bytes of allocations, freed or not, whose GPU only the growth of NVML's figures shows.
	Deduced uint64
	OOM     *OOM // its latest allocation that failed for good because of memory, or nil
	// Most that it had at one moment: its tensors on one GPU where PyTorch reports them, else what
	// it allocated on one GPU.
	PeakBytes, PeakTime uint64
	Workload
	Totals []Total
	// When it was started, in clock ticks since boot: with PID it identifies a process across
	// sessions. 0: unknown. Only inputs have it: the books tell processes apart by Begin.
	Started uint64
}

// Workload is what a process runs for, as far as the host knows it; unknown fields are empty. All
// fields are untrusted.
type Workload struct {
	Container, Pod, Namespace  string // container id, Kubernetes pod and namespace
	PodContainer               string // the container's name in its pod
	Actor                      string // Ray: the class of an actor, or the function of a task
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

// Pause is what is known of the times in which an allocator was not traced.
type Pause struct {
	// When tensors lost their stacks the latest time because of one, in ns after Begin; 0: never.
	// Lines are as if tracing had begun then.
	LostAt uint64
	// It is not traced at this moment: LiveBytes and the sites are of some time ago.
	Open bool
	// When it was traced, and what it had allocated at least then; ns after Begin. At most
	// growth.MaxPhases; none if there was no pause.
	Phases []Phase
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
	Segment      bool // these allocations are segments of PyTorch's allocator
	// Of a Segment: bytes of live tensors in it that were allocated since the attach.
	Tensors uint64
	Asleep  uint64 // of kind Tensor: part of LiveBytes without physical memory; see Tensors
	Oldest  uint64 // time of the oldest live allocation; 0 without one
	// Live bytes now minus those Snapshot.GrowthSpan ago, as far as low-water marks confirm it:
	// what a step allocates and frees does not count.
	Growth     int64
	History    []uint64 // live bytes at even steps from Snapshot.Since to End, at most HistoryLen
	Peak       uint64   // most live bytes; of several sites shown as one, the sum of their peaks
	Owners     []Owner  // of Kind Imported: the first few traced sites whose memory it is
	MoreOwners bool     // there are more than Owners has
	// Who kept it at the latest walk of the process, as far as that is known.
	Holders     []SiteHolder
	Window      uint64 // length of each of Cohorts, ns
	FirstWindow uint64 // begin of the first of Cohorts, ns after Begin
	// Allocations beyond the process's share of live allocations: no live figure has them.
	Evicted uint64
	Crowded uint64 // how often it stood in for sites beyond a limit, whose stacks are lost
	// Allocations by window of time, from the site's first allocation to its latest or to its
	// latest free, at most CohortLen; empty if no allocation is known.
	Cohorts []Cohort
	Pasts
}

// Pasts are more of the past of a Site.
type Pasts struct {
	// The recent past; nil if the process runs for no longer than the shortest horizon.
	Recent *Recent
	// Of kind Tensor, if tracing paused: what is presumed to live, with nothing but Cohorts, their
	// windows and LiveBytes: see growth.Presumed. nil: there was no pause.
	Presumed *Site
}

// Owner is a site whose memory another process imported.
type Owner struct {
	Process int // index into Snapshot.Processes
	Stack   uint64
	API     string
}

// Failure sums the failed allocations of one site with one result code.
type Failure struct {
	Process   int
	Stack     uint64
	API       string
	Kind      Kind
	Device    int32
	Result    int32
	Count     uint64
	Bytes     uint64 // sum of the requested sizes
	LastBytes uint64
	LastTime  uint64
	Crowded   uint64 // as in Site
}

// Cause is what ended allocations without a free.
type Cause uint8

const (
	ContextDestroyed Cause = iota + 1 // cuCtxDestroy
	ContextReleased                   // the last reference of a primary context
	ContextWasReset                   // cuDevicePrimaryCtxReset, cudaDeviceReset
)

// Release sums the allocations of one process that ended by one cause, except imported ones.
type Release struct {
	Process int
	Cause   Cause
	Objects uint64
	Bytes   uint64
	Time    uint64 // of the latest
}

// Pool is a stream-ordered memory pool. It holds between Used and Reserve bytes of the driver: the
// driver decides how much a pool gives back, and when.
type Pool struct {
	Process   int
	Handle    uint64 // CUmemoryPool; 0: the device's default pool
	Device    int32
	Objects   uint64
	Used      uint64 // bytes of live allocations
	Reserve   uint64 // highest Used since the last trim
	Least     uint64 // the driver holds at least this for it, in whole chunks of 32 MiB
	Held      uint64 // and at most this
	Threshold uint64 // bytes that it may keep unused when the program synchronizes
	Destroyed bool   // it has allocations left
}

// Object sums the driver objects that one process made from one stack. They take memory of the GPU
// that no call reports: it is part of Balance.Baseline or Balance.Gap, and of no sum of the books.
type Object struct {
	Process int
	Stack   uint64
	API     string
	Kind    Kind  // DriverContext, GreenContext, Module, Library or GraphExec
	Device  int32 // or UnknownDevice
	Live    uint64
	Made    uint64 // ever, live or not
	Bytes   uint64 // of live ones, as the callers named them: the size of the code's image
	Evicted uint64 // made beyond a limit, so not counted as live
	Crowded uint64 // as in Site
	Before  uint64 // live ones when the Baseline was taken: later ones add to the gap
}

// Tensors has the totals of one process's PyTorch allocator on one device. Bytes that are allocated
// and reserved are exact, as the allocator counts them; the others follow from them:
//
//	LiveBytes   = bytes allocated - bytes freed, over all size classes
//	Older       = Allocated - LiveBytes
//	Segments    = LiveBytes of the sites with Segment on the device
//	Cached      = Segments - Tensors of these sites
//	OlderCached = Reserved - Segments - Older - (LiveBytes - Asleep - Tensors of these sites)
//	Foreign     = Baseline - (Reserved - Segments), as both were at the allocator's first report
//
// A difference below 0 counts as 0. Memory that was asleep is part of Reserved without being
// memory: once any was, Reserved - Segments counts only as far as it is older than the attach, by
// the allocator's first report, and was not unmapped since. Without an allocator's totals (for
// CPUDevice, or before the first reading) the values that follow from them are 0, and counts are
// those of the sample, weighted.
//
// Sites of kind Tensor are a sample, in which a block counts as 2^n blocks if the rate of its class
// had been halved n times. For each size class of a process and device, live and freed bytes of the
// sample are weighted separately by the ratio of the class's exact totals to the sample's, and
// rounded so that the sites add up to Tensors. If the rate was halved, neighboring classes with
// small samples are weighted as one. Blocks of a class without a sample are in a site of Stack 0.
// The exact totals of classes are read once a second; between two readings the classes follow the
// sample, and add up to LiveBytes, which events report. History and Growth are estimates: the
// sample's, times the weight of live bytes at the end. Oldest is the sample's.
type Tensors struct {
	Process   int
	Device    int32  // or CPUDevice, for which only counts and Peak are known
	Allocated uint64 // by the allocator's own count, after its latest event
	Reserved  uint64
	// Highest Allocated since the attach; of CPUDevice the highest LiveBytes, read once a second.
	Peak     uint64
	PeakTime uint64

	LiveObjects, LiveBytes   uint64 // of blocks allocated since the attach
	AllocObjects, AllocBytes uint64 // of the same blocks, freed or not
	Sampled                  uint64 // live blocks in the sample
	// Most halvings of the rate of a size class, due to SampleRate.Limit.
	Halvings uint8
	// Standard error of the largest site's live bytes, from the sampling.
	Error uint64

	// Bytes that no event gave out and that are live: Allocated - LiveBytes. They were allocated
	// before the attach, or while the allocator was not traced.
	Older uint64
	// Part of Older that is not known to be from before the attach. What is freed of Older comes
	// off it first.
	Untraced uint64
	Pause
	// Bytes allocated before the attach and freed since, at even steps from Begin to End.
	OlderFreed  [HistoryLen]uint64
	OlderCached uint64 // rest of the segments that are older than the attach
	Segments    uint64 // live bytes of segments allocated since the attach
	Cached      uint64 // part of Segments that is not given out
	// Longest run of free bytes in those segments, and in older ones where the allocator was read.
	LargestFree uint64
	// Part of LiveBytes whose physical memory was unmapped, though PyTorch still counts it.
	Asleep uint64
	// Lower bound of the same for Older: free memory of older segments is taken to sleep first.
	OlderAsleep uint64
	// Part of Older in memory that was mapped there since, and is shown as other driver
	// allocations.
	OlderMoved uint64
	// Bytes of Baseline that are not the allocator's: context, modules, other libraries.
	Foreign uint64
}

// SampleRate is how PyTorch's tensors are sampled.
type SampleRate struct {
	Mean uint64 // bytes per sample, on average; 0: every tensor is in the sample
	// Samples per second and device, above which Mean is doubled for as long; 0: no limit.
	Limit uint32
}

// GPU is one device that NVML lists: a whole GPU or a MIG instance.
type GPU struct {
	Index  int // NVML index, in PCI order; of an instance, that of its GPU
	UUID   string
	Parent string // of an instance, UUID of its GPU; "" for a whole one
	Name   string
	Total  uint64
	Used   uint64 // as NVML read it last: see Now
	// What traced processes booked since that reading, and minus what it has of those that have
	// ended since.
	Since int64
	// It has no memory of its own: Total and Used are the host's MemTotal, and that minus
	// MemAvailable.
	Integrated bool
	Addressing Addressing
	HasNode    bool   // its memory is a NUMA node of the system
	Node       uint32 // that node
	// When Used was read, and what it was about half of the session earlier, at most an hour; 0
	// with few readings.
	Time, EarlierTime, EarlierUsed uint64
	Past                           []GPUPast // some of NVML's readings, by time, at most 32, the older the fewer
}

// GPUPast is what NVML reported of a GPU at a time of the session, in bytes.
type GPUPast struct {
	Time   uint64
	Used   uint64 // of the whole GPU
	Traced uint64 // part of Used that NVML listed for traced processes
	// Part of Traced that the books did not explain: the sum of Balance.Gap, as far as it is
	// positive.
	Unexplained uint64
}

// Usage is what NVML reports that a process uses on one GPU.
type Usage struct {
	PID   uint32
	UUID  string
	Bytes uint64
	Rough bool // the process allocated or freed during the reading
}

// Balance compares what NVML reports for a process on one GPU with the books: Usage = Baseline +
// Live + Rounding + Gap. Baseline is the usage when the process was first seen, minus what the
// books had then; Live counts what is Owned. Usage, Live, Rounding and Gap are those at Time.
type Balance struct {
	Process  int
	UUID     string
	Device   int32
	Usage    uint64
	Peak     uint64 // highest Usage
	Baseline uint64
	// Part of Baseline that is tensors, where only a walk knows them: PyTorch's allocator has not
	// reported by the snapshot's moment. It may have more.
	OlderTensors uint64
	Live         uint64
	Gap          int64
	// What the driver held for live allocations and pools beyond their bytes: the rest of pages and
	// chunks, and Idle as far as Usage had it.
	Rounding      uint64
	RoundingSince int64  // change of Rounding since Time; part of Since
	Idle          uint64 // most of Rounding that is uncertain: what pools may hold unused, and arrays
	Time          uint64 // when NVML was read
	Since         int64  // booked bytes allocated since Time, minus those freed, as the driver rounds them
	// Change of Live during the reading: Live is the value in between that fits the reading before
	// best.
	Doubt uint64
	// NVML listed the running process there before, and no longer does, while the books have live
	// memory there: it is checkpointed (cuda-checkpoint), or the place of the memory is unknown.
	// The other figures but Peak are 0, and Time is of its last listing. They are the same without
	// Unlisted if nothing is live, as after the end of its context.
	Unlisted bool
}

// Stats counts what the books lack, and why.
type Stats struct {
	Events uint64 // applied
	Lost   uint64 // events that are not booked
	// Lost by reason, such as LostBuffersFull; nil for older captures, and less than Lost while
	// events are being lost.
	LostFor map[string]uint64
	// Part of Lost with a known pid, by pid; not in a Snapshot: see Process.Lost.
	LostBy map[uint32]uint64
	// Frees of addresses that were never booked, for example since they are older than the attach.
	UnmatchedFrees uint64
	// Live addresses that were allocated again: their free was not seen.
	Reused       uint64
	Evicted      uint64            // allocations beyond the ledger's limits
	UnknownSizes uint64            // live allocations of unknown size, counted with 0 bytes
	Stacks       uint64            // events that need a stack
	NoStack      uint64            // events among them without one
	Missing      map[string]uint64 // NoStack by reason; nil for older captures
	// Stacks beyond the share of their process, by pid; not in a Snapshot: see Process.Beyond.
	StacksBy  map[uint32]uint64
	Truncated map[string]uint64 // stacks not walked to the end, by reason
	Torn      uint64            // stacks overwritten by a preempting thread
	// Allocations that failed for good because of memory.
	OutOfMemory uint64
	Folded      uint64 // Process.Folded of all processes, also of forgotten ones
	Cost        TensorCost
}

// Now returns what a GPU uses at the moment of its Snapshot: NVML's last reading, corrected by what
// was booked since, as the usage of processes is. It is at most the larger of Total and Used.
func (g *GPU) Now() uint64 {
	return min(uint64(max(int64(g.Used)+g.Since, 0)), max(g.Total, g.Used))
}
