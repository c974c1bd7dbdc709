// SPDX-License-Identifier: Apache-2.0

package ledger

import "slices"

// exports says how large the allocations are that other processes may import,
// by the digest of their handle: the recent ones, in two halves.
type exports struct {
	young, old map[uint64]exported
}

type exported struct {
	size  uint64
	owner owner
}

// owner is the site whose memory another process imported.
type owner struct {
	process uint32
	stack   uint64
	api     string
}

const (
	maxOwners      = 4 // of one importing site
	maxOwnersSites = 1 << 14
)

const maxExports = 1 << 15 // of each half

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
	b := l.blocks.at(n)
	if b.size == 0 {
		return
	}
	x := &l.exports
	if x.young == nil || len(x.young) >= maxExports {
		x.young, x.old = make(map[uint64]exported), x.young
	}
	s := &l.sites[b.site]
	l.procs[p].exported = true
	x.young[e.Handle] = exported{b.size, owner{p, s.stack, s.api}}
}

// sizeOf returns the size of an allocation that does not tell it, 0 if nothing does.
func (l *Ledger) sizeOf(e *Event) uint64 {
	if e.Kind != Imported || e.Handle == 0 {
		return 0
	}
	return l.exports.of(e.Handle).size
}

func (x *exports) of(handle uint64) exported {
	if e, ok := x.young[handle]; ok {
		return e
	}
	return x.old[handle]
}

// noteOwner remembers for an importing site whose memory it maps, as far as the owner is traced.
func (l *Ledger) noteOwner(site siteKey, e *Event) {
	if e.Kind != Imported || e.Handle == 0 {
		return
	}
	x := l.exports.of(e.Handle)
	list, known := l.owners[site]
	if x.size == 0 || slices.Contains(list, x.owner) || len(list) > maxOwners {
		return
	}
	if !known && len(l.owners) >= maxOwnersSites {
		l.Warn("too many sites import memory: the owner of what further ones import is not shown")
		return
	}
	l.owners[site] = append(list, x.owner) // one more than are shown says that there are more
}

// addOwners gives a site that is shown the owners of what it imported.
func (v *view) addOwners(out *Site, site siteKey) {
	for i, o := range v.l.owners[site] {
		switch {
		case v.leavesOut(o.process):
		case i == maxOwners:
			out.MoreOwners = true
		default:
			out.Owners = append(out.Owners, Owner{v.index[o.process], o.stack, o.api})
		}
	}
}

// mergeOwners adds the owners of a part of what is shown as one site.
func (s *Site) mergeOwners(part *Site) {
	for _, o := range part.Owners {
		if !slices.Contains(s.Owners, o) {
			s.Owners = append(s.Owners, o)
		}
	}
	s.MoreOwners = s.MoreOwners || part.MoreOwners
}

// forget drops the exports of a process.
func (x *exports) forget(process uint32) {
	for _, half := range [...]map[uint64]exported{x.young, x.old} {
		for digest, e := range half {
			if e.owner.process == process {
				delete(half, digest)
			}
		}
	}
}
