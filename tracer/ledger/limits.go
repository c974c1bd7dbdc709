// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// ReadLimits bound the size of books that a file fills, since the file may be forged. 0 is no
// limit. A live session needs none: the kernel half bounds what it reports.
type ReadLimits struct {
	// Most live allocations; most sites, processes and PyTorch allocators that have not been
	// forgotten.
	Live, Sites, Processes, Tensors uint64
	// Work beyond a fixed amount per event, in steps of a few ns.
	Steps uint64

	// Reached is called once, when a limit is exceeded. From then on the books do not change.
	Reached func(Limit)
}

// Limit names one of the ReadLimits.
type Limit uint8

const (
	LimitLive Limit = iota + 1
	LimitSites
	LimitProcesses
	LimitTensors
	LimitSteps
)

// limiter counts against ReadLimits.
type limiter struct {
	ReadLimits
	on      bool // there are limits
	reached bool
	sites   uint64 // made so far, less those of processes that left the books
	tensors uint64
	steps   uint64
}

const (
	defaultMaxLive = 8 << 20
	// Tables that all processes share: see quota.Quota. Beyond its share, new sites and failures of
	// a process are booked without their stack. Beyond the same share again, they are also booked
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

// Most strays of a process, and of all processes. If half of a process's strays still live, there
// is no room for more, and further ones stay on the unknown device.
const (
	maxStrays    = 1 << 14
	maxAllStrays = 1 << 18
)

// maxPools bounds the pools of all processes together.
const maxPools = 1 << 16

// maxKept is how many ended mappings are kept in case their unmapping failed.
const maxKept = 1 << 18

const (
	// Beyond its share, live objects of a process are not followed, and new stacks are booked
	// without their stack. A process has at most maxObjectSites of the latter.
	maxObjectSites    = 1 << 12
	maxAllObjects     = 1 << 18
	maxAllObjectSites = 1 << 17
	maxDerived        = 1 << 12
)

const (
	maxOwners      = 4 // of one importing site
	maxOwnersSites = 1 << 14
)

const maxExports = 1 << 18

const (
	// Walks that are kept of a process: the first, the latest, and some in between.
	maxWalks = 16
	// Holders of all processes' kept walks, which all processes share.
	maxHeld = 1 << 16
	// Storages of one walk.
	maxStorages = 1 << 20
	// A block of PyTorch's allocator is a multiple of this.
	blockStep = 512
)

// maxFreed bounds openWalk.freed and openWalk.given, whose entries beyond count as blocks of which
// nothing is known, and blockList.freed and allocator.gone.
const maxFreed = 1 << 16

// maxHeldBlocks is of how many blocks of all processes the holders are kept one by one.
const maxHeldBlocks = 1 << 21

// maxListed is how many listed blocks of all processes are kept.
const maxListed = 1 << 22

// Most bytes of live and of freed blocks of one device, so that sums of all fit 64 bits.
const maxTensors = maxSum / 2

// Most sites of a firstReport: a program has few before its first tensor.
const maxSiteLive = 1 << 12

// maxHalvings is how often the kernel half halves a probability at most. Weights are at most
// 2^maxHalvings.
const maxHalvings = 12

const (
	// allDevices is the device of a total over all devices of a process.
	allDevices = math.MinInt32

	// Events of an ended process may be delayed by this, ns.
	grace = 5e9

	// Shortest time between two purges, ns.
	purgeStep = 1e9
)

// everPart is how many sites of ended processes, of 280 bytes each, are kept per possible live
// site, of 2 KB.
const everPart = maxSitesEver / maxSites

// Options are options of a Ledger. Most callers set Begin only.
type Options struct {
	Begin uint64 // begin of the session, ns of CLOCK_MONOTONIC
	Host  string // name of the machine, copied into snapshots
	// No session: a process is read once, without probes. Copied into snapshots.
	Unattached bool
	// Limit of live allocations of all processes (see quota.Quota); 0: 8 Mi, about 90 bytes each.
	MaxLive int
	Limits  ReadLimits // limits of books that a file fills

	maxProcesses int  // for tests
	unrounded    bool // for tests whose allocations are of a few bytes: the driver takes no more
}
