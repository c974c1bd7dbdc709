// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
)

// exported is the size and owner of an allocation that other processes may import. Ledger.exports
// has the recent ones by the digest of their handle.
type exported struct {
	size  uint64
	owner owner
}

// owner is a site whose memory another process imported.
type owner struct {
	process uint32 // or none: it left the books
	stack   uint64
	api     string
}

const (
	maxOwners      = 4 // of one importing site
	maxOwnersSites = 1 << 14
)

const maxExports = 1 << 18

func (l *Ledger) export(e *Event) {
	p := l.instance(e.PID, e.Time)
	n, ok := l.live[liveKey{e.Address, p, e.Space}]
	ok = ok && e.Space != Blocks
	if e.Space == Physical {
		if v := l.procs[p].physical; v != nil {
			n, ok = l.live[liveKey{v.handles[e.Address].memory, p, memories}]
		}
	}
	if !ok || e.Handle == 0 {
		return
	}
	b := l.entries.at(n)
	if b.size == 0 {
		return
	}
	q, s := &l.procs[p], &l.sites[b.site]
	if before, known := l.exports[e.Handle]; !known || before.owner.process != p {
		if known {
			l.give(tableExports, &l.procs[before.owner.process])
			delete(l.exports, e.Handle)
		}
		if !l.room(tableExports, q) {
			if l.forgetExports(p, (len(q.exported)+1)/2); !l.room(tableExports, q) {
				return
			}
		}
		l.hold(tableExports, q)
		q.exported = append(q.exported, e.Handle)
	}
	l.exports[e.Handle] = exported{b.size, owner{p, s.stack, s.api}}
}

// sizeOf returns the size of an imported allocation by its export, 0 if it is unknown.
func (l *Ledger) sizeOf(e *Event) uint64 {
	if e.Kind != Imported || e.Handle == 0 {
		return 0
	}
	return l.exports[e.Handle].size
}

// noteOwner remembers whose memory an importing site maps, if the owner is traced.
func (l *Ledger) noteOwner(site siteKey, e *Event) {
	if e.Kind != Imported || e.Handle == 0 {
		return
	}
	x := l.exports[e.Handle]
	list, known := l.owners[site]
	if x.size == 0 || slices.Contains(list, x.owner) || len(list) > maxOwners {
		return
	}
	if p := &l.procs[site.process]; !known {
		if !l.room(tableImporters, p) {
			l.warnOf(p.PID, fmt.Sprintf("process %d has too many sites that import memory: the owners of the memory are not shown for the rest", p.PID))
			return
		}
		l.hold(tableImporters, p)
	}
	l.owners[site] = append(list, x.owner) // one more than shown means that there are more
}

// addOwners sets the owners of a site in a snapshot.
func (v *view) addOwners(out *Site, site siteKey) {
	for _, o := range v.l.owners[site] {
		switch {
		case o.process == none || len(out.Owners) == maxOwners:
			out.MoreOwners = true
		case v.leavesOut(o.process):
		default:
			out.Owners = append(out.Owners, Owner{v.index[o.process], o.stack, o.api})
		}
	}
}

// forgetOwners drops the sites of processes that leave the books, as sites and as owners.
func (l *Ledger) forgetOwners(leaves func(process uint32) bool) {
	l.spend(8 * len(l.owners))
	for site, list := range l.owners {
		if leaves(site.process) {
			delete(l.owners, site)
			continue
		}
		kept := slices.DeleteFunc(list, func(o owner) bool { return o.process != none && leaves(o.process) })
		if len(kept) == len(list) {
			continue
		}
		if !slices.Contains(kept, owner{process: none}) {
			kept = append(kept, owner{process: none})
		}
		l.owners[site] = kept
	}
}

// mergeOwners adds the owners of one of several sites that are shown as one.
func (s *Site) mergeOwners(part *Site) {
	for _, o := range part.Owners {
		if !slices.Contains(s.Owners, o) {
			s.Owners = append(s.Owners, o)
		}
	}
	s.MoreOwners = s.MoreOwners || part.MoreOwners
}

// forgetExports drops the oldest exports of a process.
func (l *Ledger) forgetExports(process uint32, n int) {
	p := &l.procs[process]
	for _, digest := range p.exported[:n] {
		if l.exports[digest].owner.process == process && l.exports[digest].size != 0 {
			delete(l.exports, digest)
			l.give(tableExports, p)
		}
	}
	p.exported = append([]uint64(nil), p.exported[n:]...)
}
