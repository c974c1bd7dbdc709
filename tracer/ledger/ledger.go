// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

const (
	defaultMaxLive = 8 << 20
	// Tables that all processes share: see Shares. Beyond its share of these, new sites and failures of a process are booked
	// without their stack, beyond its share of as many more without what else tells them apart and has no limit of its own.
	maxSites    = 1 << 18
	maxFailures = 1 << 14
	// Of one process, beyond its share.
	maxBareFailures = maxFailures / processPart
	// Sites, those of ended processes included.
	maxSitesEver = 1 << 23
	// Further processes, ended ones included, are not booked at all.
	defaultMaxProcesses = 1 << 17
	// Threads whose last free is remembered, for its undoing.
	maxLastFrees = 1 << 16

	maxWarnings = 256
	recentBits  = 15

	// CUDA ordinals end here; a higher one was misread.
	maxDevices = 256

	// No allocation is larger, as no address space is: a higher size was misread. And no process
	// allocates more of one kind in its life, so that sums of all kinds have room in 64 bits.
	maxSize = 1 << 48
	maxSum  = 1 << 60

	// A free that fails with this code came while the process shut its driver
	// down: the memory is gone all the same.
	resultDeinitialized = 4

	resultUnknown = 999
)

// Options of a Ledger; only Begin matters to every user.
type Options struct {
	Begin   uint64     // ns of CLOCK_MONOTONIC when tracing began
	Host    string     // name of the machine, copied into snapshots
	MaxLive int        // limit of live allocations of all processes, 0: 8 Mi (about 90 bytes each); each has a share: see Shares
	Limits  ReadLimits // of books that are filled from a file

	maxProcesses int // for tests
}

// Ledger holds the books. It must be used from one goroutine at a time.
//
// Processes and sites are kept until the ledger is dropped, also after the
// process ended, when they take less room: a recording has to show them at its end.
type Ledger struct {
	options     Options
	procs       []process           // by process number
	byPID       map[uint32]uint32   // number of the newest process of a pid
	alive       []uint32            // processes that had not ended when they were last gone through
	sites       []site              // by site number
	windows     []windows           // for further sites
	floors      [][CohortLen]uint64 // likewise
	classes     map[uint64]uint32   // of tensors, by a hash of their key without its size class: the first site
	siteOf      map[siteKey]uint32
	freeSites   []uint32                // site numbers that name none
	apis        *names                  // of archived sites
	segments    map[uint64]bool         // stacks of archived sites that may be segments, and whether they are: see MarkSegments
	recent      [1 << recentBits]uint32 // sites that were asked for lately, since siteOf takes long
	live        map[liveKey]uint32      // number of the block
	entries     entries
	lastFree    map[uint32]lastFree // by thread id
	released    map[uint32]released // of physical memory: what lastFree has no room for
	endings     uint32              // contexts that ended
	pools       []pool              // by pool number; 0 is none
	noPools     []uint32            // pool numbers that name none
	exports     map[uint64]exported // by digest of the handle
	owners      map[siteKey][]owner // of what sites imported
	shares      [tables]Shares
	users       map[uint32]*[tables]int32 // what the processes of a user hold
	processesOf map[uint32]int            // by user; 0: not known
	lostBy      map[uint32]uint64         // Stats.LostBy, as told last
	stacksBy    map[uint32]uint64         // likewise
	failures    map[failureKey]*Failure
	gpus        []GPU
	sampling    []float64 // by size class
	rate        SampleRate
	stats       Stats
	homeless    uint64 // events of processes that are not booked
	warnings    []string
	warned      map[string]bool
	limiter     limiter
	observer    Observer // or nil

	ended      []uint32 // processes that ended and still have their blocks
	purgeAt    uint64   // when the first of them may lose them
	opened     bool     // NVML is being read: see UsageOpened
	firstUsage uint64   // time of the first NVML reading
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

// memories is the space of the numbers that physical memory has in the books:
// its handles may be several, and the driver hands them out again while it still lives.
const memories = Blocks + 1

// viewed is the kind of a block that is only known, not booked: see View.
const viewed = lastKind + 1

type failureKey struct {
	siteKey
	result int32
}

type site struct {
	siteKey
	liveObjects, liveBytes   uint64 // of kind Tensor: weighted, see sampled
	allocObjects, allocBytes uint64 // of kind Tensor: those that were freed, likewise
	liveSquares              uint64 // of kind Tensor: sum of the squared weights of live blocks
	first, last              uint32 // list of live blocks by time
	total, sum               uint32 // in process.totals: of the device, of all devices; not of viewed; of kind Tensor: in process.tensors
	history                  history
	own                      cohorts
	shared                   *cohorts // in place of own

	// What follows is not looked at for each event.
	inside  uint64 // bytes of PyTorch's live blocks in its allocations, when they were last placed; of kind Tensor: of the sample, those asleep
	oldest  uint64 // of a process whose blocks were purged
	early   count  // dropped before their context was reported as ended
	ended   uint32 // Ledger.endings when its context ended last
	segment bool
	bare    bool   // it takes a place of tableBare
	free    bool   // it takes none
	evicted uint64 // Site.Evicted
	crowded uint64 // Site.Crowded
}

// lastFree is what a thread's latest free did.
type lastFree struct {
	entry   entry // prev is its neighbour at that time
	process uint32
	endings uint32 // Ledger.endings at that time
	space   Space
	outcome outcome
}

type outcome uint8

const (
	unmatched    outcome = iota // nothing was there
	freed                       // the block ended, or lost a reference
	lessPhysical                // the rest is in Ledger.released
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
		warned:   make(map[string]bool),
		segments: make(map[uint64]bool),
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
		tableWarnings: maxWarnings, tableProcesses: o.maxProcesses,
	} {
		l.shares[t] = NewShares(size)
	}
	return l
}

// Apply books one event; it keeps no reference to e. It does not allocate
// unless the event brings something new: a process, a site, a higher number of
// live allocations.
func (l *Ledger) Apply(e *Event) {
	if l.limiter.on && l.full() {
		return
	}
	l.stats.Events++
	if e.Time >= l.purgeAt {
		l.purge(e.Time)
	}
	if e.Kind > lastKind || e.Space > Blocks {
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
	case View:
		l.view(e)
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
		l.pool(e)
	case Allocator:
		l.allocator(e)
	case Totals:
		l.tellTotals(e)
	case AddressFree:
		l.addressFree(e)
	case OutOfMemory:
		l.stats.Events-- // it is told beside the event of the call
	case Learn:
		l.stats.Events-- // likewise
		l.learn(e)
	}
}

// setStats takes over the counters that come from the kernel side, as totals
// since the start: Lost, to which it adds its own, LostBy, Stacks, NoStack, Missing, StacksBy, Torn and Truncated. The others are
// the ledger's own and are ignored.
func (l *Ledger) setStats(s Stats) {
	l.stats.Lost, l.stats.Stacks, l.stats.NoStack, l.stats.Torn = s.Lost+l.homeless, s.Stacks, s.NoStack, s.Torn
	l.stats.Missing, l.stats.Truncated = copyCounts(s.Missing), copyCounts(s.Truncated)
	l.countBy(l.lostBy, s.LostBy, func(p *process, n uint64) { p.Lost += n })
	l.countBy(l.stacksBy, s.StacksBy, func(p *process, n uint64) { p.stacksLost += n })
}

// countBy adds what totals by pid have grown since they were told last to the processes that had the pid since.
func (l *Ledger) countBy(before, now map[uint32]uint64, add func(p *process, n uint64)) {
	for pid, total := range now {
		n, known := l.byPID[pid]
		if !known {
			continue
		}
		more := total - before[pid]
		if total < before[pid] {
			more = total // counted from 0 again, for another process with the pid
		}
		before[pid] = total
		for more > 0 && n != none {
			p := &l.procs[n]
			if p.purged {
				break
			}
			add(p, more) // to each of them, as nothing tells which it was
			n = p.older
		}
	}
}

// warn adds a sentence to the warnings of all later snapshots, once. Beyond 256
// different ones, further ones are left out, and the last one says so.
func (l *Ledger) warn(text string) {
	if l.warned[text] {
		return
	}
	if l.shares[tableWarnings].used >= maxWarnings {
		text = moreWarnings
	} else {
		l.shares[tableWarnings].Take()
	}
	l.addWarning(text)
}

// warnOf is Warn for a sentence about a process, which has a share of the warnings.
func (l *Ledger) warnOf(pid uint32, text string) {
	n, ok := l.byPID[pid]
	switch {
	case !ok:
		l.warn(text)
	case l.warned[text]:
	case l.room(tableWarnings, &l.procs[n]):
		l.hold(tableWarnings, &l.procs[n])
		l.addWarning(text)
	default:
		l.addWarning(moreWarnings)
	}
}

const moreWarnings = "there were more warnings"

func (l *Ledger) addWarning(text string) {
	if !l.warned[text] {
		l.warned[text] = true
		l.warnings = append(l.warnings, text)
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
