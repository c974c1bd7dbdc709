// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// table is a table of the ledger that all processes share.
type table uint8

const (
	tableSites     table = iota // with their stacks
	tableBare                   // sites beyond the share of tableSites, without their stacks
	tableEver                   // sites, including those of ended processes
	tableLive                   // live allocations
	tableMappings               // handles and mappings of physical memory
	tableFailures               // sites of failed allocations
	tablePools                  // memory pools
	tableStrays                 // allocations that wait for their device
	tableExports                // exported memory
	tableImporters              // sites that import memory
	tableObjects                // driver objects
	tableObjectSites
	tableFrees // threads whose last free may be undone
	tableUnmapped
	tableWarnings
	tableProcesses
	tableHeld // holders

	tables
)

var tableNames = [tables]string{
	tableSites: "sites", tableBare: "sites without stacks", tableEver: "sites since the start", tableLive: "live allocations",
	tableMappings: "mappings", tableFailures: "failed allocations", tablePools: "memory pools", tableStrays: "allocations without a device",
	tableExports: "exported memory", tableImporters: "importing sites", tableObjects: "driver objects", tableObjectSites: "driver objects' stacks",
	tableFrees: "failed frees", tableUnmapped: "failed unmappings", tableWarnings: "warnings", tableProcesses: "processes", tableHeld: "holders",
}

// NoUser is the user of processes that ended before their user was known. Together they have the
// share of one user.
const NoUser = math.MaxUint32

// member is the part of one process in what all processes of a session share.
type member struct {
	*session
	Process                // Totals and Devices are only set in snapshots
	number  uint32         // counts the processes from 0
	held    [tables]int32  // places of each table
	user    *[tables]int32 // what all processes of its user hold
	beyond  [tables]uint64 // how often there was no room
	left    bool           // it is not in the books any more
}

// room reports whether a process may take a place of a table, and counts if not.
func (m *member) room(t table) bool {
	if m.hasRoomFor(t, 0) {
		return true
	}
	m.beyond[t]++
	return false
}

// hasRoomFor reports whether a process may take so many places of a table and one more.
func (m *member) hasRoomFor(t table, more int) bool {
	return m.quotas[t].Room(int(m.held[t])+more, int(m.user[t])+more)
}

func (m *member) hold(t table) { m.giveAll(t, -1) }

func (m *member) give(t table) { m.giveAll(t, 1) }

func (m *member) giveAll(t table, n int) {
	m.quotas[t].Add(-n)
	m.held[t] -= int32(n)
	m.user[t] -= int32(n)
}

// warnOf is session.warn for a sentence about the process, which has a share of the warnings.
func (m *member) warnOf(text string) {
	of, known := m.warned[text]
	switch {
	case known && of != nil:
		m.warned[text] = m // it stays as long as the newest of its processes
	case known:
	case m.room(tableWarnings):
		m.hold(tableWarnings)
		m.addWarning(text, m)
	default:
		m.addWarning(moreWarnings, nil)
	}
}

// setUser counts what the process holds as the user's, and reports whether its user was unknown.
func (p *process) setUser(user uint32) bool {
	if user == 0 || p.User != 0 {
		return false
	}
	p.User = user
	all := p.users[user]
	if all == nil {
		all = new([tables]int32)
		p.users[user] = all
	}
	for t := range p.held {
		all[t] += p.held[t]
	}
	p.user = all
	return true
}

// Limits are the sizes of the ledger's largest tables: see quota.Quota.
type Limits struct {
	Sites uint64
	Live  uint64 // allocations
}

// Beyond counts how often a process had no room in a table, since its share or the table was used
// up.
type Beyond struct {
	Table string
	Count uint64
}

// BeyondStacks names the table of stacks' frames, which is not the ledger's.
const BeyondStacks = "stacks"

// beyondList returns the tables whose share a process has used up.
func (p *process) beyondList() (list []Beyond) {
	for t, n := range p.beyond {
		if n != 0 {
			list = append(list, Beyond{tableNames[t], n})
		}
	}
	if p.stacksLost != 0 {
		list = append(list, Beyond{BeyondStacks, p.stacksLost})
	}
	return list
}

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

	// Of all processes.
	heldBlocks   int // see walks.blocks and olderSet.blocks
	listedBlocks int // see blockList and allocator.reading
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

// exported is the size and owner of an allocation that other processes may import. session.exports
// has the recent ones by the digest of their handle.
type exported struct {
	size  uint64
	owner owner
}

// owner is a site whose memory another process imported.
type owner struct {
	process *member // or nil: it left the books
	stack   uint64
	api     string
}
