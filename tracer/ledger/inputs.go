// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
)

// fold has sites of the newest process of a pid, or of all processes, lose their stack: see Fold.
func (l *Ledger) fold(pid uint32, below uint64) {
	if l.full() {
		return
	}
	l.spend(len(l.procs))
	for _, p := range l.procs {
		if !p.purged && (pid == 0 || p == l.byPID[pid]) {
			p.fold(float64(below))
		}
	}
}

// Folded returns Stats.Folded.
func (l *Ledger) Folded() uint64 { return l.stats.Folded }

// MarkSegments asks is for the stack of each site that is not known as one of segments yet. Call it
// before BlockList.
func (l *Ledger) MarkSegments(is func(stack uint64) bool) {
	l.spend(16 * len(l.archive.segments))
	for _, p := range l.procs {
		l.spend(4 * len(p.sites))
		for s := range p.all() {
			if !s.segment && s.stack != 0 && s.mayBeSegment() {
				s.segment = is(s.stack)
			}
		}
	}
	l.archive.mark(is)
}

// setTensors books a reading of the allocators' totals, made at time. Allocators that are not
// listed keep their last reading, also after the end of their process. A pid means its newest
// process; pids that were never traced are ignored.
//
// It warns if more is live than the allocator reports as allocated. A reading may have half of what
// a busy process allocated and freed since the one before, so it tolerates that much until the
// process pauses or ends.
func (l *Ledger) setTensors(time uint64, totals []TensorTotals) {
	l.newest = max(l.newest, time)
	for i := range totals {
		if l.full() {
			return
		}
		if p := l.byPID[totals[i].PID]; p != nil && !p.purged {
			p.setTotals(time, &totals[i])
		}
	}
}

// setUsage books one NVML reading of all processes, made at time. It ignores pids that were never
// traced.
//
// The first reading of a process on a GPU sets its Baseline: usage minus the live bytes booked by
// then, at least 0. For a process that was running at the attach, that is its context and all
// earlier allocations. For a process or a GPU of it that was first seen later, it is the first
// reading after its first allocation there, since until then its context (some 300 MiB) is under
// construction. Later memory that is not booked is Gap: modules loaded lazily, memory of functions
// that are not traced. The sizes of freed memory from before the attach are unknown; Baseline
// stays, and Gap becomes negative by that much. A reading during which the process allocated is of
// some moment since UsageOpened: see excess.
func (l *Ledger) setUsage(time uint64, usages []Usage) {
	if l.full() {
		return
	}
	if l.firstUsage == 0 {
		l.firstUsage = time
	}
	l.gpus.read = max(l.gpus.read, time)
	l.eachAlive(func(p *process) {
		for k := range p.readings {
			p.readings[k].present = false
		}
	})
	for i := range usages {
		p := l.byPID[usages[i].PID]
		if p == nil || p.End != 0 {
			continue // unknown, or NVML has not noticed the exit yet
		}
		if l.full() {
			return
		}
		l.spend(len(l.gpus.list))
		p.setUsage(time, &usages[i], l.gpus.list)
	}
	split := slices.ContainsFunc(l.gpus.list, func(g GPU) bool { return g.Parent != "" })
	for i := range usages {
		if p := l.byPID[usages[i].PID]; p != nil && p.End == 0 && !usages[i].Rough {
			if l.full() {
				return
			}
			l.spend(16 * (len(p.readings) + len(p.totals) + len(p.tensors)))
			if !split {
				p.doubtOrdinals()
			}
			p.deduce(time)
		}
	}
	l.opened = false
	l.eachAlive(func(p *process) { p.endOrphans(time) })
	markUsage(l, time)
}

// openUsage begins a reading of NVML: the next UsageReading is of a moment since then.
func (l *Ledger) openUsage() {
	if l.full() {
		return
	}
	l.opened = true
	l.eachAlive(func(p *process) {
		l.spend(len(p.totals))
		for k := range p.totals {
			t := &p.totals[k]
			t.low, t.high = t.LiveBytes, t.LiveBytes
		}
	})
}

// walkOf returns the process that a walk is of, or nil.
func (l *Ledger) walkOf(pid uint32, time uint64) *process {
	p := l.byPID[pid]
	if p == nil || l.full() {
		return nil
	}
	for p.Begin > time && p.older != nil {
		p = p.older
		l.spend(1)
	}
	if p.purged || p.End != 0 && time > p.End {
		return nil
	}
	return p
}

// DriverMemory returns at most so many live allocations of a process that the driver gave out and
// PyTorch's allocator did not take. Only their addresses lead to their holders.
func (l *Ledger) DriverMemory(pid uint32, most int) (list []Block) {
	p := l.byPID[pid]
	if p == nil {
		return nil
	}
	for s := range p.all() {
		if s.segment || s.space != Addresses || s.kind != Device && s.kind != Async && s.kind != Managed {
			continue
		}
		for i := s.first; i != 0 && len(list) < most; i = p.entries.at(i).next {
			b := p.entries.at(i)
			list = append(list, Block{Address: b.address, Size: b.size, Device: s.device})
		}
	}
	return list
}

// TensorBlock is a live block of PyTorch's allocator that has an event of its own.
type TensorBlock struct {
	Address, Size uint64
	Time          uint64 // of its allocation, ns
	Stack         uint64 // 0 without one
}

// TensorBlocks returns the live blocks of the sample of a running process, without those of
// allocators that are not traced now. traced is false if the books do not have the process.
func TensorBlocks(l *Ledger, pid uint32) (list []TensorBlock, traced bool) {
	p := l.byPID[pid]
	if p == nil || p.End != 0 {
		return nil, false
	}
	for s := range p.all() {
		if s.kind != Tensor || s.device < 0 || p.sumOf(s).open {
			continue
		}
		for i := s.first; i != 0; {
			b := p.entries.at(i)
			list = append(list, TensorBlock{b.address, b.size, b.time, s.stack})
			i = b.next
		}
	}
	return list, true
}

// HeldOrdinals returns the ordinals on which a process has held memory that the driver counts as
// its own ever since the latest UsageOpened. It is to be called before the UsageReading that
// follows.
func (l *Ledger) HeldOrdinals(pid uint32) (list []int32) {
	p := l.byPID[pid]
	if p == nil || !l.opened {
		return nil
	}
	l.spend(len(p.totals))
	for i := range p.totals {
		if t := &p.totals[i]; t.Device >= 0 && t.Kind.Owned() && t.low > 0 && !slices.Contains(list, t.Device) {
			list = append(list, t.Device)
		}
	}
	return list
}

// setStats replaces the counters that the kernel half keeps since the attach: Lost and LostFor
// (plus the ledger's own), LostBy, Stacks, NoStack, Missing, StacksBy, Torn, Truncated and Cost. It
// ignores the others.
func (l *Ledger) setStats(s Stats) {
	homeless := l.lost.homeless
	l.stats.Lost, l.stats.Stacks, l.stats.NoStack, l.stats.Torn = s.Lost+homeless, s.Stacks, s.NoStack, s.Torn
	l.stats.Cost = s.Cost
	l.stats.LostFor, l.stats.Missing, l.stats.Truncated = copyCounts(s.LostFor), copyCounts(s.Missing), copyCounts(s.Truncated)
	if homeless > 0 && (s.Lost == 0 || len(s.LostFor) > 0) { // otherwise an older capture has no reasons
		if l.stats.LostFor == nil {
			l.stats.LostFor = map[string]uint64{}
		}
		l.stats.LostFor[LostNoRoomInLedger] = homeless
	}
	countBy(l.byPID, l.lost.events, s.LostBy, func(p *process, n uint64) { p.Lost += n })
	countBy(l.byPID, l.lost.stacks, s.StacksBy, func(p *process, n uint64) { p.stacksLost += n })
}

// Observe makes o the observer of the ledger; nil is none. It must be called before the first
// event.
func (l *Ledger) Observe(o Observer) { l.observer = o }

// countBy adds the growth of totals by pid to the processes that had the pid meanwhile. It keeps
// the totals of pids that are not known any more for as long as they are reported.
func countBy(byPID map[uint32]*process, before, now map[uint32]uint64, add func(p *process, n uint64)) {
	for pid, total := range now {
		p := byPID[pid]
		last, counted := before[pid]
		if p == nil && !counted {
			continue
		}
		more := total - last
		if total < last {
			more = total // another process with the pid counts from 0
		}
		before[pid] = total
		for more > 0 && p != nil && !p.purged {
			add(p, more) // to each of them, since it could be any
			p = p.older
		}
	}
	for pid := range before {
		if _, reported := now[pid]; !reported {
			delete(before, pid)
		}
	}
}

// Glance has the sums of the books at a moment, which take no snapshot.
type Glance struct {
	Processes int // that have not ended
	// GPU memory that they hold: tensors where PyTorch reports them, else allocations since the
	// attach.
	Live uint64
	Lost uint64 // Stats.Lost
}

// Glance returns sums of the books. Its duration grows with the processes that have not ended.
func (l *Ledger) Glance() Glance {
	g := Glance{Lost: l.stats.Lost}
	l.eachAlive(func(p *process) {
		g.Processes++
		g.Live += p.measured()
	})
	return g
}

// Measured returns the GPU memory of a process, as Glance.Live counts it.
func (l *Ledger) Measured(pid uint32) uint64 {
	if p := l.byPID[pid]; p != nil {
		return p.measured()
	}
	return 0
}

// sitesAtOnce is the number of sites, about 5 ms, after which StacksInUse ends a call. It looks at
// all sites of a process in one call.
const sitesAtOnce = 4096

// StacksInUse calls add with the ids of all stacks that the books refer to, some more than once. It
// does so for some processes at a time, since nothing is booked meanwhile: the first call is with
// 0, each further one with the result of the call before, until that is 0. A process that begins
// between two calls may be left out.
func (l *Ledger) StacksInUse(from int, add func(id uint64)) (next int) {
	if from == 0 {
		for _, x := range l.exports {
			add(x.owner.stack)
		}
	}
	looked := 0
	// Numbers stay, while places in the list change when processes leave the books.
	at, _ := slices.BinarySearchFunc(l.procs, uint32(from), func(p *process, n uint32) int { return cmp.Compare(p.number, n) })
	for _, p := range l.procs[at:] {
		if looked > sitesAtOnce {
			return int(p.number)
		}
		looked += 1 + p.stacksOf(add)
	}
	return 0
}

// stacksOf adds the stacks of the process, and returns how many sites it has.
func (p *process) stacksOf(add func(id uint64)) (sites int) {
	for s := range p.all() {
		add(s.stack)
	}
	for i := range p.objects.sites {
		add(p.objects.sites[i].stack)
	}
	for key := range p.failures {
		add(key.stack)
	}
	for key, list := range p.owners {
		add(key.stack)
		for _, o := range list {
			add(o.stack)
		}
	}
	if p.oom != nil {
		add(p.oom.Stack)
	}
	sites = len(p.sites) + len(p.objects.sites)
	for s := range p.unpacked() {
		add(s.stack)
		sites++
	}
	return sites
}
