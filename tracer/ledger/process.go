// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

const (
	none = math.MaxUint32

	// allDevices is the device of a total over all devices of a process.
	allDevices = math.MinInt32

	// Events of an ended process may be delayed by this, ns.
	grace = 5e9

	// Shortest time between two purges, ns.
	purgeStep = 1e9
)

type process struct {
	places
	Process                   // Totals and Devices are only set in snapshots
	older      uint32         // the process that had the pid before, or none
	totals     []runningTotal // per device and kind, and per kind over allDevices
	sites      []uint32
	archived   []byte   // sites of a process that was purged: see Ledger.archive
	devices    []string // UUID by CUDA ordinal
	misnamed   bool     // NVML contradicts devices
	readings   []reading
	system     []System // without Process and Device; by UUID
	olderFreed uint64   // time of the latest free of memory that is not booked
	purged     bool
	free       bool   // the number is unused: its process left the books
	unsized    uint64 // live allocations of unknown size among those that were purged

	objects   objects
	physical  *physical
	primaries []primary // by device; few
	releases  [ContextWasReset + 1]Release
	pools     map[poolKey]uint32 // pool numbers
	tensors   []tensors          // by device
	blockList blockList
	freeRuns  []freeRun         // by device, in segments
	strays    []stray           // allocations on unknown devices, oldest first
	crowded   bool              // strays has no room for more
	pages     map[uint64]page   // shared by small allocations, by address / driverPage
	clients   map[uint64]int    // of the kernel driver: how many live objects of the space Objects they have
	graphs    map[int32]*chunks // of memory of graphs, by device
	atEnd     []deviceLive      // what its pools held when its entries were purged
	past      bool              // of a view: its totals are of another moment than its rounding
	exported  []uint64          // its keys in Ledger.exports, oldest first
	asleep    asleep

	bareFailures int              // sites of failures beyond its share
	stacksLost   uint64           // Stats.StacksBy
	selected     map[int32]uint64 // by device: handle of the current pool
	own          map[uint64]int32 // by handle: device whose default pool it is
	walks        *walks           // nil without one
	peak         peakMark
	high         highMark
	oom          *OOM
}

// setProcess names a process. It may come before or after the process's first events, and again
// when the name changes; empty fields of p change nothing. A zero Begin means the newest process of
// the pid; a Begin after its end starts the next one.
func (l *Ledger) setProcess(p Process) {
	if l.full() || l.manyProcesses() && !l.hasRoom(p.PID, p.Begin, p.User) {
		return
	}
	n, known := l.byPID[p.PID]
	if !known || p.Begin != 0 {
		n = l.instance(p.PID, p.Begin)
	}
	q := &l.procs[n]
	l.setUser(q, p.User)
	q.Comm, q.Exe, q.OwnRoot = cmp.Or(p.Comm, q.Comm), cmp.Or(p.Exe, q.Exe), p.OwnRoot || q.OwnRoot
	if p.Workload != (Workload{}) {
		q.Workload = p.Workload
	}
	if p.Devices != nil {
		q.devices = append([]string(nil), p.Devices...)
	}
}

// hasRoom reports whether an event or name of a pid can be booked: it belongs to a process in the
// books, or there is room for another one.
func (l *Ledger) hasRoom(pid uint32, time uint64, user uint32) bool {
	n, ok := l.byPID[pid]
	if ok && (l.procs[n].End == 0 || time <= l.procs[n].End) {
		return true
	}
	if l.quotas[tableProcesses].Room(0, l.processesOf[user]) {
		return true
	}
	l.warn(fmt.Sprintf("too many processes (at most %d per user): events of the rest are counted as lost", l.quotas[tableProcesses].Size()/quota.UserPart))
	return false
}

// manyProcesses reports whether one user can have so many processes that there is no room for
// another one of it.
func (l *Ledger) manyProcesses() bool {
	s := &l.quotas[tableProcesses]
	return s.Used() >= s.Size()/quota.UserPart
}

// setDevices sets the UUID of each CUDA ordinal of a known process.
func (l *Ledger) setDevices(pid uint32, ordinals []string) {
	if n, ok := l.byPID[pid]; ok {
		l.procs[n].devices, l.procs[n].misnamed = append([]string(nil), ordinals...), false
	}
}

// instance returns the number of the process that had the pid at that time. An event as old as the
// end of a process still belongs to it; a younger one begins the next.
func (l *Ledger) instance(pid uint32, time uint64) uint32 {
	n, ok := l.byPID[pid]
	if !ok {
		return l.begin(pid, time, none)
	}
	p := &l.procs[n]
	if p.End != 0 && time > p.End {
		return l.begin(pid, time, n)
	}
	for p.older != none && time <= l.procs[p.older].End {
		n = p.older
		p = &l.procs[n]
		l.spend(1)
	}
	p.Begin = min(p.Begin, time)
	return n
}

func (l *Ledger) begin(pid uint32, time uint64, older uint32) uint32 {
	n := l.number()
	l.procs[n] = process{places: places{user: new([tables]int32)}, Process: Process{PID: pid, Begin: time}, older: older}
	l.byPID[pid] = n
	l.began = true
	l.alive = append(l.alive, n)
	l.quotas[tableProcesses].Take()
	l.processesOf[0]++
	if l.observer != nil {
		l.observer.Began(n, pid)
	}
	return n
}

// number returns an unused process number, the lowest one.
func (l *Ledger) number() uint32 {
	if last := len(l.noProcs) - 1; last >= 0 {
		n := l.noProcs[last]
		l.noProcs = l.noProcs[:last]
		return n
	}
	l.procs = append(l.procs, process{})
	return uint32(len(l.procs) - 1)
}

// eachAlive calls do for the processes that have not ended, in the order of their numbers.
func (l *Ledger) eachAlive(do func(n uint32)) {
	l.spend(16 * len(l.alive))
	alive := l.alive[:0]
	for _, n := range l.alive {
		if l.procs[n].End == 0 {
			alive = append(alive, n)
			do(n)
		}
	}
	l.alive = alive
}

// end ends a process, and leaves its live allocations as they are.
func (l *Ledger) end(e *Event) {
	n, ok := l.byPID[e.PID]
	if !ok {
		return
	}
	p := &l.procs[n]
	if p.End != 0 || p.older != none && e.Time <= l.procs[p.older].End {
		return
	}
	p.End, p.Replaced = max(e.Time, p.Begin, 1), e.Op == Exec
	l.ended = append(l.ended, n)
	l.purgeAt = min(l.purgeAt, purgeTime(p))
}

func purgeTime(p *process) uint64 {
	if p.End > math.MaxUint64-grace {
		return math.MaxUint64
	}
	return p.End + grace
}

// purge drops the entries of processes that ended a while ago.
func (l *Ledger) purge(now uint64) {
	l.spend(16 * len(l.ended))
	l.purgeAt = math.MaxUint64
	rest := l.ended[:0]
	frees := false
	for _, n := range l.ended {
		p := &l.procs[n]
		if at := purgeTime(p); now < at {
			rest = append(rest, n)
			l.purgeAt = min(l.purgeAt, max(at, now+purgeStep))
			continue
		}
		p.purged = true
		for _, s := range p.sites {
			p.unsized += l.purgeSite(&l.sites[s])
		}
		frees = frees || p.held[tableFrees] != 0
		l.setStrays(p, nil)
		p.physical, p.primaries, p.pages, p.clients = nil, nil, nil, nil
		p.atEnd = l.poolsHold(p, nil)
		l.dropList(p)
		l.dropHeldBlocks(p)
		l.dropOpenWalk(p)
		l.countMappings(p)
		p.asleep.compact(p)
		p.objects.forget()
		l.countObjects(p)
		l.archive(n)
		l.forgetPools(n)
		l.spend(len(p.exported))
		l.forgetExports(n, len(p.exported))
	}
	l.ended = rest
	if frees {
		l.forgetFrees(func(of uint32) bool { return l.procs[of].purged })
	}
}

// runningTotal is a Total with the lowest and highest LiveBytes since UsageOpened.
type runningTotal struct {
	Total
	low, high uint64
	rounding  rounding // without that of graphs
}

// purgeSite drops the entries of a site, and returns how many of them have an unknown size.
func (l *Ledger) purgeSite(s *site) (unsized uint64) {
	if s.first != 0 {
		s.oldest = l.entries.at(s.first).time
	}
	for n := s.first; n != 0; {
		b := l.entries.at(n)
		next := b.next
		if b.size == 0 && s.kind != aliased {
			unsized++
		}
		l.dropEntry(liveKey{b.address, s.process, s.space}, n)
		n = next
	}
	s.first, s.last = 0, 0
	return unsized
}

// total returns the index of a total in p.totals. A process has few.
func (p *process) total(device int32, kind Kind) uint32 {
	for i := range p.totals {
		if t := &p.totals[i]; t.Device == device && t.Kind == kind {
			return uint32(i)
		}
	}
	p.totals = append(p.totals, runningTotal{Total: Total{Device: device, Kind: kind}})
	return uint32(len(p.totals) - 1)
}

// onlyGPU returns the GPU that alone carries the process, or UnknownDevice and "" if there are
// several or none is known. The ordinal alone can be unknown.
func (p *process) onlyGPU(uuids []string) (ordinal int32, uuid string) {
	switch {
	case len(uuids) == 1:
		ordinal, uuid = 0, uuids[0]
	case len(p.readings) == 1:
		uuid = p.readings[0].uuid
		ordinal = ordinalOf(uuids, uuid)
	default:
		return UnknownDevice, ""
	}
	for i := range p.totals {
		t := &p.totals[i]
		if t.Device >= 0 && t.Device != ordinal && !t.Kind.OnHost() && ordinal != UnknownDevice {
			return UnknownDevice, "" // its calls use another device
		}
	}
	for i := range p.tensors {
		if d := p.tensors[i].device; d >= 0 && d != ordinal && ordinal != UnknownDevice {
			return UnknownDevice, ""
		}
	}
	return ordinal, uuid
}

func ordinalOf(uuids []string, uuid string) int32 { return int32(slices.Index(uuids, uuid)) }
