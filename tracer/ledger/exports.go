// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"slices"
)

func (p *driver) export(e *Event) {
	n, ok := p.live[liveKey{e.Address, e.Space}]
	ok = ok && e.Space != Blocks
	if e.Space == Physical {
		if v := p.physical; v != nil {
			n, ok = p.live[liveKey{v.handles[e.Address].memory, memories}]
		}
	}
	if !ok || e.Handle == 0 {
		return
	}
	b := p.entries.at(n)
	if b.size == 0 {
		return
	}
	s := p.sites[b.site]
	if before, known := p.exports[e.Handle]; !known || before.owner.process != p.member {
		if known {
			before.owner.process.give(tableExports)
			delete(p.exports, e.Handle)
		}
		if !p.room(tableExports) {
			if p.forgetExports((len(p.exported) + 1) / 2); !p.room(tableExports) {
				return
			}
		}
		p.hold(tableExports)
		p.exported = append(p.exported, e.Handle)
	}
	p.exports[e.Handle] = exported{b.size, owner{p.member, s.stack, s.api}}
}

// sizeOf returns the size of an imported allocation by its export, 0 if it is unknown.
func (s *session) sizeOf(e *Event) uint64 {
	if e.Kind != Imported || e.Handle == 0 {
		return 0
	}
	return s.exports[e.Handle].size
}

// noteOwner remembers whose memory an importing site maps, if the owner is traced.
func (p *driver) noteOwner(site siteKey, e *Event) {
	if e.Kind != Imported || e.Handle == 0 {
		return
	}
	x := p.exports[e.Handle]
	list, known := p.owners[site]
	if x.size == 0 || slices.Contains(list, x.owner) || len(list) > maxOwners {
		return
	}
	if !known {
		if !p.room(tableImporters) {
			p.warnOf(fmt.Sprintf("process %d has too many sites that import memory: the owners of the memory are not shown for the rest", p.PID))
			return
		}
		p.hold(tableImporters)
	}
	if p.owners == nil {
		p.owners = make(map[siteKey][]owner)
	}
	p.owners[site] = append(list, x.owner) // one more than shown means that there are more
}

// forgetOwners drops owners that left the books.
func (p *driver) forgetOwners() {
	p.spend(8 * len(p.owners))
	for site, list := range p.owners {
		kept := slices.DeleteFunc(list, func(o owner) bool { return o.process != nil && o.process.left })
		if len(kept) == len(list) {
			continue
		}
		if !slices.Contains(kept, owner{}) {
			kept = append(kept, owner{})
		}
		p.owners[site] = kept
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
func (p *driver) forgetExports(n int) {
	for _, digest := range p.exported[:n] {
		if p.exports[digest].owner.process == p.member && p.exports[digest].size != 0 {
			delete(p.exports, digest)
			p.give(tableExports)
		}
	}
	p.exported = append([]uint64(nil), p.exported[n:]...)
}
