// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

const (
	defaultMaxLive = 8 << 20
	// Tables that all processes share: see quota.Quota. Beyond its share, new sites and failures of a
	// process are booked without their stack. Beyond the same share again, they are also booked
	// without everything else that has no limit of its own.
	maxSites    = 1 << 18
	maxFailures = 1 << 14
	// For one process, beyond its share.
	maxBareFailures = maxFailures / quota.ProcessPart
	// Sites, including those of ended processes.
	maxSitesEver = 1 << 23
	// Processes, including ended ones. Further ones are not booked.
	defaultMaxProcesses = 1 << 17
	// Threads whose last free is remembered, so that it can be undone.
	maxLastFrees = 1 << 16

	maxWarnings = 256
	recentBits  = 15

	// CUDA ordinals are lower; a higher one was misread.
	maxDevices = 256

	// No allocation is larger, as no address space is: a higher size was misread. And no process
	// allocates more of one kind in its life, so that sums of all kinds fit 64 bits.
	maxSize = 1 << 48
	maxSum  = 1 << 60

	// A free that fails with this code came while the process shut its driver down: the memory is
	// freed nevertheless.
	resultDeinitialized = 4

	resultUnknown = 999
)

// Options are options of a Ledger. Most callers set Begin only.
type Options struct {
	Begin uint64 // begin of the session, ns of CLOCK_MONOTONIC
	Host  string // name of the machine, copied into snapshots
	// Limit of live allocations of all processes (see quota.Quota); 0: 8 Mi, about 90 bytes each.
	MaxLive int
	Limits  ReadLimits // limits of books that a file fills

	maxProcesses int  // for tests
	unrounded    bool // for tests whose allocations are of a few bytes: the driver takes no more
}

// Ledger holds the books. It must be used from one goroutine at a time.
//
// The ledger keeps processes and sites until Forget, since a capture shows them at its end. Those of
// ended processes take less memory.
type Ledger struct {
	options Options
	procs   []process         // by process number
	noProcs []uint32          // unused process numbers, the highest first
	began   bool              // there was a process
	gone    forgotten         // sums of the processes that left the books
	byPID   map[uint32]uint32 // number of the newest process of a pid
	alive   []uint32          // processes that had not ended at the last eachAlive
	sites   []site            // by site number
	windows []windows         // for further sites
	levels  []levels          // likewise
	// First site of kind Tensor by a hash of its key without the size class.
	classes   map[uint64]uint32
	siteOf    map[siteKey]uint32
	freeSites []uint32 // unused site numbers
	apis      *names   // API names of archived sites
	// Whether the stacks of archived sites are of segments: see MarkSegments.
	segments    map[uint64]segmentStack
	recent      [1 << recentBits]uint32 // cache of siteOf
	live        map[liveKey]uint32      // number of the entry
	entries     entries
	lastFree    map[uint32]lastFree // by thread id
	released    map[uint32]released // more about frees of physical memory in lastFree
	endings     uint32              // contexts that ended
	renewed     uint32              // endings at the last renewEndings
	pools       []pool              // by pool number; 0 is none
	noPools     []uint32            // unused pool numbers
	exports     map[uint64]exported // by digest of the handle
	owners      map[siteKey][]owner // of what sites imported
	quotas      [tables]quota.Quota
	users       map[uint32]*[tables]int32 // places that the processes of a user hold
	processesOf map[uint32]int            // by user; 0: not known
	lostBy      map[uint32]uint64         // Stats.LostBy, at the last reading
	stacksBy    map[uint32]uint64         // likewise
	failures    map[failureKey]*Failure
	gpus        []GPU
	sampling    []float64 // by size class
	rate        SampleRate
	stats       Stats
	homeless    uint64 // events of processes beyond the limit
	warnings    []string
	warned      map[string]uint32 // number of the process that a warning is of, or none
	limiter     limiter
	observer    Observer // or nil

	ended      []uint32 // processes that ended and still have their entries
	purgeAt    uint64   // when the first of them loses them
	openWalks  int      // processes whose memory is being walked
	heldBlocks int      // of all processes: see walks.blocks and olderSet.blocks
	listed     int      // of all processes: see blockList
	newest     uint64   // time of the latest event or reading of allocators
	opened     bool     // after UsageOpened, until UsageReading
	firstUsage uint64   // time of the first NVML reading
	lastUsage  uint64
	used       map[string]*usedMarks // by GPU
	carrying   bool                  // the pieces of an opening are coming
	opening    *opening              // nil before the first Carried
	openedAt   uint64                // Snapshot.Opened
}

type liveKey struct {
	address uint64 // of physical memory: its number
	process uint32
	space   Space
}

type siteKey struct {
	stack   uint64
	context uint64
	process uint32
	device  int32
	kind    Kind
	space   Space
	class   uint8 // SizeClass of a Tensor
	api     string
}

type failureKey struct {
	siteKey
	result int32
}

type site struct {
	siteKey
	liveObjects, liveBytes   uint64 // of kind Tensor: weighted, see sampled
	allocObjects, allocBytes uint64 // of kind Tensor: freed ones, weighted
	liveSquares              uint64 // of kind Tensor: sum of the squared weights of live blocks
	first, last              uint32 // list of live entries by time
	// Indexes of process.totals: of the device, of all devices; of kind Tensor: of process.tensors;
	// unused for aliased.
	total, sum uint32
	history    history
	own        cohorts
	shared     *cohorts // used instead of own

	// The fields below are not used for each event.

	// Bytes of live blocks in its allocations at the last BlockList; of kind Tensor: of sampled
	// blocks that are asleep.
	inside  uint64
	peak    sitePeak
	high    *siteHigh // nil: never kept
	oldest  uint64    // time of the oldest entry, of a process whose entries were purged
	early   count     // ended before the end of their context was reported
	ended   uint32    // Ledger.endings when its context ended last
	segment bool
	bare    bool   // it takes a place of tableBare instead of tableSites
	free    bool   // it takes no place
	evicted uint64 // Site.Evicted
	crowded uint64 // Site.Crowded
}

// lastFree is the effect of a thread's latest free.
type lastFree struct {
	entry   entry // prev was its neighbor then
	process uint32
	endings uint32 // Ledger.endings at that time
	space   Space
	outcome outcome
}

type outcome uint8

const (
	unmatched    outcome = iota // no allocation had the address
	freed                       // the entry ended, or lost a reference
	lessPhysical                // see Ledger.released
)

// New returns empty books.
func New(o Options) *Ledger {
	if o.MaxLive <= 0 {
		o.MaxLive = defaultMaxLive
	}
	if o.maxProcesses <= 0 {
		o.maxProcesses = defaultMaxProcesses
	}
	l := &Ledger{
		options:  o,
		byPID:    make(map[uint32]uint32),
		siteOf:   make(map[siteKey]uint32),
		owners:   make(map[siteKey][]owner),
		live:     make(map[liveKey]uint32),
		lastFree: make(map[uint32]lastFree),
		released: make(map[uint32]released),
		pools:    make([]pool, 1),
		failures: make(map[failureKey]*Failure),
		classes:  make(map[uint64]uint32),
		warned:   make(map[string]uint32),
		used:     make(map[string]*usedMarks),
		segments: make(map[uint64]segmentStack),
		apis:     &names{number: make(map[string]uint64)},
		purgeAt:  math.MaxUint64,
		limiter:  limiter{ReadLimits: o.Limits, on: o.Limits.Reached != nil},

		exports:     make(map[uint64]exported),
		users:       make(map[uint32]*[tables]int32),
		processesOf: make(map[uint32]int),
		lostBy:      make(map[uint32]uint64),
		stacksBy:    make(map[uint32]uint64),
	}
	for t, size := range [tables]int{
		tableSites: maxSites, tableBare: maxSites, tableEver: maxSitesEver, tableLive: o.MaxLive, tableMappings: o.MaxLive,
		tableFailures: maxFailures, tablePools: maxPools, tableStrays: maxAllStrays, tableExports: maxExports, tableImporters: maxOwnersSites,
		tableObjects: maxAllObjects, tableObjectSites: maxAllObjectSites, tableFrees: maxLastFrees, tableUnmapped: maxKept,
		tableWarnings: maxWarnings, tableProcesses: o.maxProcesses, tableHeld: maxHeld,
	} {
		l.quotas[t] = quota.New(size)
	}
	return l
}

// Apply books one event; it keeps no reference to e. It allocates memory only for new processes and
// sites, and for more live allocations than ever before.
func (l *Ledger) Apply(e *Event) {
	if l.limiter.on && l.full() {
		return
	}
	if l.carrying {
		l.endOpening(false)
	}
	l.stats.Events++
	l.newest = max(l.newest, e.Time)
	if e.Time >= l.purgeAt {
		l.purge(e.Time)
	}
	if e.Kind > lastKind || e.Kind == aliased || e.Space > lastSpace || e.Space == memories {
		return
	}
	if l.manyProcesses() && !l.hasRoom(e.PID, e.Time, 0) {
		if e.Op != Exit && e.Op != Exec {
			l.homeless++
			l.stats.Lost++
		}
		return
	}
	if e.Kind.IsObject() {
		l.applyObject(e)
		return
	}
	switch e.Op {
	case Alloc:
		l.alloc(e)
	case Free:
		l.free(e)
	case AllocFailed:
		l.allocFailed(e)
	case FreeFailed:
		l.freeFailed(e)
	case Exec, Exit:
		l.end(e)
	default:
		l.applyRare(e)
	}
}

func (l *Ledger) applyRare(e *Event) {
	switch e.Op {
	case Alias:
		l.alias(e)
	case Map:
		l.mapMemory(e)
	case Unmap:
		l.unmap(e)
	case Retain:
		l.retain(e)
	case Export:
		l.export(e)
	case ContextDerive:
		l.contextDerive(e)
	case ContextRetain:
		l.contextRetain(e)
	case ContextRelease:
		l.contextRelease(e)
	case ContextReset:
		l.contextReset(e)
	case ContextDestroy:
		l.contextDestroy(e)
	case PoolCreate, PoolDestroy, PoolTrim, PoolThreshold, PoolOwn, PoolSelect, PoolCurrent:
		l.bookPool(e)
	case Allocator:
		l.bookAllocator(e)
	case Totals:
		l.tellTotals(e)
	case AddressFree:
		l.addressFree(e)
	case OutOfMemory:
		l.stats.Events-- // it comes in addition to the event of the call
		l.outOfMemory(e)
	case Learn:
		l.stats.Events-- // likewise
		l.learn(e)
	}
}

// setStats replaces the counters that the kernel half keeps since the attach: Lost and LostFor (plus
// the ledger's own), LostBy, Stacks, NoStack, Missing, StacksBy, Torn and Truncated. It ignores the
// others.
func (l *Ledger) setStats(s Stats) {
	l.stats.Lost, l.stats.Stacks, l.stats.NoStack, l.stats.Torn = s.Lost+l.homeless, s.Stacks, s.NoStack, s.Torn
	l.stats.LostFor, l.stats.Missing, l.stats.Truncated = copyCounts(s.LostFor), copyCounts(s.Missing), copyCounts(s.Truncated)
	if l.homeless > 0 && l.stats.LostFor != nil {
		l.stats.LostFor[LostNoRoomInLedger] = l.homeless
	}
	l.countBy(l.lostBy, s.LostBy, func(p *process, n uint64) { p.Lost += n })
	l.countBy(l.stacksBy, s.StacksBy, func(p *process, n uint64) { p.stacksLost += n })
}

// countBy adds the growth of totals by pid to the processes that had the pid meanwhile. It keeps the
// totals of pids that are not known any more for as long as they are reported.
func (l *Ledger) countBy(before, now map[uint32]uint64, add func(p *process, n uint64)) {
	for pid, total := range now {
		n, known := l.byPID[pid]
		last, counted := before[pid]
		if !known && !counted {
			continue
		}
		more := total - last
		if total < last {
			more = total // another process with the pid counts from 0
		}
		before[pid] = total
		if !known {
			continue
		}
		for more > 0 && n != none {
			p := &l.procs[n]
			if p.purged {
				break
			}
			add(p, more) // to each of them, since it could be any
			n = p.older
		}
	}
	for pid := range before {
		if _, reported := now[pid]; !reported {
			delete(before, pid)
		}
	}
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
