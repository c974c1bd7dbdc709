// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// session has what all processes of a session share. Each process refers to it.
type session struct {
	options  Options
	quotas   [tables]quota.Quota
	users    map[uint32]*[tables]int32 // places that the processes of a user hold
	stats    Stats
	warnings []string
	warned   map[string]*member // what a warning is of, or nil
	limiter  limiter
	observer Observer  // or nil
	sampling []float64 // by size class
	rate     SampleRate
	exports  map[uint64]exported // by digest of the handle
	archive  archive
	newest   uint64 // time of the latest event or reading of allocators

	opened     bool   // after UsageOpened, until UsageReading
	firstUsage uint64 // time of the first NVML reading

	heldBlocks   int // of all processes: see walks.blocks and olderSet.blocks
	listedBlocks int // likewise: see blockList
}

func newSession(o Options) *session {
	s := &session{
		options: o,
		users:   make(map[uint32]*[tables]int32),
		warned:  make(map[string]*member),
		limiter: limiter{ReadLimits: o.Limits, on: o.Limits.Reached != nil},
		exports: make(map[uint64]exported),
		archive: newArchive(),
	}
	for t, size := range [tables]int{
		tableSites: maxSites, tableBare: maxSites, tableEver: maxSitesEver, tableLive: o.MaxLive, tableMappings: o.MaxLive,
		tableFailures: maxFailures, tablePools: maxPools, tableStrays: maxAllStrays, tableExports: maxExports, tableImporters: maxOwnersSites,
		tableObjects: maxAllObjects, tableObjectSites: maxAllObjectSites, tableFrees: maxLastFrees, tableUnmapped: maxKept,
		tableWarnings: maxWarnings, tableProcesses: o.maxProcesses, tableHeld: maxHeld,
	} {
		s.quotas[t] = quota.New(size)
	}
	return s
}

// full reports whether the books do not change any more.
func (s *session) full() bool {
	x := &s.limiter
	if !x.on || x.reached {
		return x.reached
	}
	live, processes := uint64(s.quotas[tableLive].Used()), uint64(s.quotas[tableProcesses].Used())
	for _, c := range [...]struct {
		limit Limit
		n, of uint64
	}{
		{LimitLive, live, x.Live}, {LimitSites, x.sites, x.Sites}, {LimitProcesses, processes, x.Processes},
		{LimitTensors, x.tensors, x.Tensors}, {LimitSteps, x.steps, x.Steps},
	} {
		if c.of != 0 && c.n > c.of {
			x.reached = true
			x.Reached(c.limit)
			break
		}
	}
	return x.reached
}

// spend counts steps of work.
func (s *session) spend(steps int) { s.limiter.steps += uint64(steps) }

// setLimits makes the tables smaller. Before the first event, it resizes the tables themselves.
// Later, when memory becomes scarce, it shrinks the shares of processes and users: they keep what
// they have, and newcomers have as much room as before. Values of 0, and higher ones than before,
// change nothing.
func (s *session) setLimits(x Limits, began bool) {
	shrink := func(t table, n uint64) {
		switch q := &s.quotas[t]; {
		case n == 0 || n >= uint64(q.Limit()):
		case !began:
			q.Resize(int(n))
		default:
			q.Shrink(int(n))
		}
	}
	for _, t := range [...]table{tableSites, tableBare, tableFailures, tableObjectSites, tablePools, tableImporters} {
		shrink(t, x.Sites)
	}
	for _, t := range [...]table{tableLive, tableMappings, tableStrays, tableExports, tableObjects, tableUnmapped} {
		shrink(t, x.Live)
	}
	if !began && x.Sites != 0 {
		shrink(tableEver, min(x.Sites, maxSites)*everPart)
		shrink(tableProcesses, x.Sites/2)
	}
}

// setSampling sets the probability of each size class with which its blocks are in the sample. All
// blocks of classes that p does not have are in the sample, as are all without setSampling.
func (s *session) setSampling(p []float64) {
	s.sampling = append(s.sampling[:0], p[:min(len(p), SizeClasses)]...)
	for i, x := range s.sampling {
		if !(x > 0 && x <= 1) {
			s.sampling[i] = 1
		}
	}
}

func (s *session) inclusion(class int) float64 {
	if class < len(s.sampling) {
		return s.sampling[class]
	}
	return 1
}

// warn adds a sentence to the warnings of all later snapshots, once. After 256 different ones, a
// last one reports that there were more.
func (s *session) warn(text string) {
	if _, known := s.warned[text]; known {
		return
	}
	if s.quotas[tableWarnings].Used() >= maxWarnings {
		text = moreWarnings
	} else {
		s.quotas[tableWarnings].Take()
	}
	s.addWarning(text, nil)
}

const moreWarnings = "there were more warnings"

func (s *session) addWarning(text string, of *member) {
	if _, known := s.warned[text]; !known {
		s.warned[text] = of
		s.warnings = append(s.warnings, text)
	}
}

// forgetWarnings drops the warnings of processes that left the books.
func (s *session) forgetWarnings() {
	s.warnings = slices.DeleteFunc(s.warnings, func(text string) bool {
		of := s.warned[text]
		if of == nil || !of.left {
			return false
		}
		delete(s.warned, text)
		return true
	})
}
