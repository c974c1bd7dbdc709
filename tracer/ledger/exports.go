// SPDX-License-Identifier: Apache-2.0

package ledger

// exports says how large the allocations are that other processes may import,
// by the digest of their handle: the recent ones, in two halves.
type exports struct {
	young, old map[uint64]exported
}

type exported struct {
	size    uint64
	process uint32
}

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
	size := l.blocks.at(n).size
	if size == 0 {
		return
	}
	x := &l.exports
	if x.young == nil || len(x.young) >= maxExports {
		x.young, x.old = make(map[uint64]exported), x.young
	}
	x.young[e.Handle] = exported{size, p}
}

// sizeOf returns the size of an allocation that does not tell it, 0 if nothing does.
func (l *Ledger) sizeOf(e *Event) uint64 {
	if e.Kind != Imported || e.Handle == 0 {
		return 0
	}
	if x, ok := l.exports.young[e.Handle]; ok {
		return x.size
	}
	return l.exports.old[e.Handle].size
}

// forget drops the exports of a process.
func (x *exports) forget(process uint32) {
	for _, half := range [...]map[uint64]exported{x.young, x.old} {
		for digest, e := range half {
			if e.process == process {
				delete(half, digest)
			}
		}
	}
}
