// SPDX-License-Identifier: Apache-2.0

package ledger

// released is what the latest cuMemRelease or cuMemUnmap of a thread ended.
type released struct {
	handle uint64 // 0: mappings ended
	held   memoryOf
	ended  []endedMapping
}

// memoryOf is a memory as it was before.
type memoryOf struct {
	number uint64
	entry  entry
	learns bool
}

type endedMapping struct {
	mapping
	of memoryOf
}

// maxKept is how many ended mappings are kept in case their unmapping failed.
const maxKept = 1 << 18

// memoryOf returns what is needed to revive a memory.
func (l *Ledger) memoryOf(process uint32, number uint64) memoryOf {
	m, ok := l.procs[process].physical.memories[number]
	if !ok {
		return memoryOf{} // an alias
	}
	return memoryOf{number, *l.entries.at(l.live[liveKey{number, process, memories}]), m.learns}
}

func (l *Ledger) rememberPhysical(e *Event, process uint32, r released) {
	l.forgetFree(e.TID)
	p, more := &l.procs[process], len(r.ended)-1
	if s := &l.quotas[tableUnmapped]; len(r.ended) > 0 && !s.Room(int(p.held[tableUnmapped])+more, int(p.user[tableUnmapped])+more) {
		l.forgetFrees(func(of uint32) bool { return of == process })
		if !s.Room(more, int(p.user[tableUnmapped])+more) {
			p.beyond[tableUnmapped]++
			return
		}
	}
	l.remember(e.TID, lastFree{entry: entry{address: e.Address}, process: process, outcome: lessPhysical})
	if _, kept := l.lastFree[e.TID]; kept {
		l.released[e.TID] = r
		l.giveAll(tableUnmapped, p, -len(r.ended))
	}
}

// undoPhysical undoes the thread's last free, unless its handle or addresses were given out again:
// then the memory had been freed, whatever the call returned.
func (l *Ledger) undoPhysical(process uint32, e *Event) {
	r := l.released[e.TID]
	l.forgetFree(e.TID)
	v := l.procs[process].physical
	if v == nil {
		return
	}
	if r.handle != 0 {
		l.undoRelease(process, &r, e.Time)
		return
	}
	for _, x := range r.ended {
		if v.mappings.Overlaps(x.Start, x.End) || !l.mayMap(process) || !l.reviveMemory(process, &x.of, e.Time) {
			continue
		}
		v.mappings.Insert(x.mapping)
		l.procs[process].asleep.cut(x.Start, x.End)
		if m, ok := v.memories[x.Value.memory]; ok {
			m.mappings++
			v.memories[x.Value.memory] = m
			l.tellMapped(process, &x.mapping, e.Time)
		}
	}
}

func (l *Ledger) undoRelease(process uint32, r *released, time uint64) {
	v := l.procs[process].physical
	h, taken := v.handles[r.handle]
	_, aliased := l.live[liveKey{r.handle, process, Physical}]
	switch {
	case aliased || taken && h.memory != r.held.number:
	case taken:
		h.references++
		v.handles[r.handle] = h
	case l.mayMap(process) && l.reviveMemory(process, &r.held, time):
		l.addHandle(process, r.handle, r.held.number)
	}
}

// reviveMemory revives a memory if it has ended, and reports whether it lives.
func (l *Ledger) reviveMemory(process uint32, was *memoryOf, time uint64) bool {
	v := l.procs[process].physical
	if _, ok := v.memories[was.number]; ok || was.number == 0 {
		return true
	}
	if !l.revive(liveKey{was.number, process, memories}, was.entry, time) {
		return false
	}
	v.memories[was.number] = memory{learns: was.learns}
	return true
}
