// SPDX-License-Identifier: Apache-2.0

package ledger

import "math"

const (
	defaultMaxLive = 8 << 20
	// Beyond these many, new sites and failures are booked without their stack.
	maxSites    = 1 << 18
	maxFailures = 1 << 14
	// Threads whose last free is remembered, for its undoing.
	maxLastFrees = 1 << 16

	maxWarnings = 256

	// A free that fails with this code came while the process shut its driver
	// down: the memory is gone all the same.
	resultDeinitialized = 4
)

// Options of a Ledger; only Begin matters to every user.
type Options struct {
	Begin   uint64 // ns of CLOCK_MONOTONIC when tracing began
	Host    string // name of the machine, copied into snapshots
	MaxLive int    // limit of live allocations, 0: 8 Mi (about 90 bytes each)
}

// Ledger holds the books. It must be used from one goroutine at a time.
//
// Processes and sites are kept until the ledger is dropped, also after the
// process ended: a recording has to show them at its end.
type Ledger struct {
	options  Options
	procs    []process         // by process number
	byPID    map[uint32]uint32 // number of the newest process of a pid
	sites    []site            // by site number
	siteOf   map[siteKey]uint32
	live     map[liveKey]uint32 // number of the block
	blocks   blocks
	lastFree map[uint32]lastFree // by thread id
	failures map[failureKey]*Failure
	gpus     []GPU
	stats    Stats
	warnings []string
	warned   map[string]bool

	ended      []uint32 // processes that ended and still have their blocks
	purgeAt    uint64   // when the first of them may lose them
	firstUsage uint64   // time of the first NVML reading
}

type liveKey struct {
	address uint64
	process uint32
}

type siteKey struct {
	stack   uint64
	process uint32
	device  int32
	kind    Kind
	api     string
}

type failureKey struct {
	siteKey
	result int32
}

type site struct {
	siteKey
	liveObjects, liveBytes   uint64
	allocObjects, allocBytes uint64
	oldest                   uint64 // of a process whose blocks were purged
	first, last              uint32 // list of live blocks by time
	total, sum               uint32 // in process.totals: of the device, of all devices
	history                  history
}

// lastFree is what a thread's latest free did.
type lastFree struct {
	block   block // prev is its neighbour at that time
	process uint32
	matched bool
}

// New returns empty books.
func New(o Options) *Ledger {
	if o.MaxLive <= 0 {
		o.MaxLive = defaultMaxLive
	}
	return &Ledger{
		options:  o,
		byPID:    make(map[uint32]uint32),
		siteOf:   make(map[siteKey]uint32),
		live:     make(map[liveKey]uint32),
		lastFree: make(map[uint32]lastFree),
		failures: make(map[failureKey]*Failure),
		warned:   make(map[string]bool),
		purgeAt:  math.MaxUint64,
	}
}

// Begin sets the time from which the session counts, when it is later than
// Options said. It must come before the first event.
func (l *Ledger) Begin(time uint64) { l.options.Begin = time }

// Apply books one event; it keeps no reference to e. It does not allocate
// unless the event brings something new: a process, a site, a higher number of
// live allocations.
func (l *Ledger) Apply(e *Event) {
	l.stats.Events++
	if e.Time >= l.purgeAt {
		l.purge(e.Time)
	}
	switch e.Op {
	case Alloc:
		l.alloc(e)
	case AllocFailed:
		l.allocFailed(e)
	case Free:
		l.free(e)
	case FreeFailed:
		l.freeFailed(e)
	case Exec, Exit:
		l.end(e)
	}
}

// SetGPUs replaces the list of GPUs; the ledger keeps a copy.
func (l *Ledger) SetGPUs(g []GPU) { l.gpus = append(l.gpus[:0], g...) }

// SetStats takes over the counters that come from the kernel side, as totals
// since the start: Lost, Stacks, NoStack, Torn and Truncated. The others are
// the ledger's own and are ignored.
func (l *Ledger) SetStats(s Stats) {
	l.stats.Lost, l.stats.Stacks, l.stats.NoStack, l.stats.Torn = s.Lost, s.Stacks, s.NoStack, s.Torn
	l.stats.Truncated = copyCounts(s.Truncated)
}

// Warn adds a sentence to the warnings of all later snapshots, once. Beyond 256
// different ones, further ones are left out, and the last one says so.
func (l *Ledger) Warn(text string) {
	if l.warned[text] || len(l.warnings) > maxWarnings {
		return
	}
	if len(l.warnings) == maxWarnings {
		text = "there were more warnings"
	}
	l.warned[text] = true
	l.warnings = append(l.warnings, text)
}

func (l *Ledger) alloc(e *Event) {
	if e.Address == 0 || e.Size == 0 {
		return // cudaMalloc(0) succeeds with a null pointer
	}
	p := l.instance(e.PID, e.Time)
	key := liveKey{e.Address, p}
	if old, ok := l.live[key]; ok {
		l.stats.Reused++
		l.drop(key, old, e.Time)
	}
	n := l.site(siteKey{e.Stack, p, e.Device, e.Kind, e.API})
	s := &l.sites[n]
	s.allocObjects++
	s.allocBytes += e.Size
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &l.procs[p].totals[t]
		t.AllocObjects++
		t.AllocBytes += e.Size
	}
	if len(l.live) >= l.options.MaxLive {
		l.stats.Evicted++
		return
	}
	l.addLive(s, e.Size, e.Time)
	if l.procs[p].purged {
		return // a straggler: too late to be freed, so it needs no block
	}
	b := l.blocks.take(block{address: e.Address, size: e.Size, time: e.Time, site: n})
	l.live[key] = b
	l.link(b, s.last)
}

func (l *Ledger) allocFailed(e *Event) {
	p := l.instance(e.PID, e.Time)
	key := failureKey{siteKey{e.Stack, p, e.Device, e.Kind, e.API}, e.Result}
	f := l.failures[key]
	if f == nil && len(l.failures) >= maxFailures {
		l.Warn("too many different sites of failed allocations: further ones are shown without their stacks")
		key.stack = 0
		f = l.failures[key]
	}
	if f == nil {
		f = &Failure{Process: int(p), Stack: key.stack, API: e.API, Kind: e.Kind, Device: e.Device, Result: e.Result}
		l.failures[key] = f
	}
	f.Count++
	f.Bytes += e.Size
	f.LastBytes, f.LastTime = e.Size, e.Time
}

func (l *Ledger) free(e *Event) {
	if e.Address == 0 {
		return
	}
	p := l.instance(e.PID, e.Time)
	if len(l.lastFree) >= maxLastFrees {
		clear(l.lastFree) // threads long gone; at worst some failed frees are not undone
	}
	last := lastFree{block: block{address: e.Address}, process: p}
	key := liveKey{e.Address, p}
	if b, ok := l.live[key]; ok {
		last.block, last.matched = *l.blocks.at(b), true
		l.drop(key, b, e.Time)
	} else {
		l.stats.UnmatchedFrees++
	}
	l.lastFree[e.TID] = last
}

// freeFailed undoes the last free of the thread.
func (l *Ledger) freeFailed(e *Event) {
	last, ok := l.lastFree[e.TID]
	if !ok || e.Address != 0 && e.Address != last.block.address {
		return
	}
	p := &l.procs[last.process]
	if p.PID != e.PID || p.End != 0 && e.Time > p.End {
		return
	}
	delete(l.lastFree, e.TID)
	if !last.matched {
		l.stats.UnmatchedFrees--
		return
	}
	key := liveKey{last.block.address, last.process}
	if _, taken := l.live[key]; taken || e.Result == resultDeinitialized {
		return // an address that was handed out again had been freed, whatever the call said
	}
	if len(l.live) >= l.options.MaxLive {
		l.stats.Evicted++
		return
	}
	l.addLive(&l.sites[last.block.site], last.block.size, e.Time)
	if p.purged {
		return
	}
	b := l.blocks.take(last.block)
	l.live[key] = b
	l.link(b, last.block.prev)
}

// drop ends an allocation.
func (l *Ledger) drop(key liveKey, b uint32, time uint64) {
	size, s := l.blocks.at(b).size, &l.sites[l.blocks.at(b).site]
	delete(l.live, key)
	l.unlink(b)
	l.blocks.release(b)
	s.liveObjects--
	s.liveBytes -= size
	s.history.record(l.options.Begin, time, s.liveBytes)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &l.procs[key.process].totals[t]
		t.LiveObjects--
		t.LiveBytes -= size
	}
}

func (l *Ledger) addLive(s *site, size, time uint64) {
	s.liveObjects++
	s.liveBytes += size
	s.history.record(l.options.Begin, time, s.liveBytes)
	for _, t := range [...]uint32{s.total, s.sum} {
		t := &l.procs[s.process].totals[t]
		t.LiveObjects++
		t.LiveBytes += size
		if t.LiveBytes > t.PeakBytes {
			t.PeakBytes, t.PeakTime = t.LiveBytes, time
		}
	}
}

// site returns the number of the site with this key.
func (l *Ledger) site(key siteKey) uint32 {
	n, ok := l.siteOf[key]
	if !ok && len(l.sites) >= maxSites && key.stack != 0 {
		l.Warn("too many different stacks: allocations from further ones are shown without their stacks")
		key.stack = 0
		n, ok = l.siteOf[key]
	}
	if ok {
		return n
	}
	p := &l.procs[key.process]
	n = uint32(len(l.sites))
	l.sites = append(l.sites, site{
		siteKey: key,
		total:   p.total(key.device, key.kind),
		sum:     p.total(allDevices, key.kind),
	})
	l.siteOf[key] = n
	p.sites = append(p.sites, n)
	return n
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
