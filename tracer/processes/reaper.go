// SPDX-License-Identifier: Apache-2.0

package processes

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/vramprof/vramprof/tracer/procfs"
)

// Reaper finds the processes that have ended without a report: the kernel may not report the end of
// each, as they were gone before it knew of them, or the ring was full.
type Reaper struct {
	table   *Table
	emptied atomic.Uint64 // how often the events ring was read to its end

	mu     sync.Mutex          // of Gone; comes before Table.mu
	goneAt map[*Process]uint64 // of processes that are missing: emptied from which on they have ended
}

// NewReaper returns the Reaper of a Table.
func NewReaper(t *Table) *Reaper { return &Reaper{table: t, goneAt: map[*Process]uint64{}} }

// RingWasEmpty notes that the events ring was read to its end, and all its events are booked.
func (r *Reaper) RingWasEmpty() { r.emptied.Add(1) }

// Emptied returns how often RingWasEmpty was called.
func (r *Reaper) Emptied() uint64 { return r.emptied.Load() }

// Gone returns the processes that do not exist any more and whose events have all been read. The
// ring must have been read to its end after they were found missing. That counts twice, since the
// first time may have been over already. It is to be called once per second.
func (r *Reaper) Gone() (gone []uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing := map[*Process]bool{}
	for pid, p := range r.table.all() {
		if !procfs.Exists(pid) {
			missing[p] = true
		}
	}
	maps.DeleteFunc(r.goneAt, func(p *Process, _ uint64) bool { return !missing[p] })
	emptied := r.emptied.Load()
	for p := range missing {
		switch at := r.goneAt[p]; {
		case at == 0:
			r.goneAt[p] = emptied + 2
		case emptied >= at && r.table.get(p.pid) == p:
			gone = append(gone, p.pid)
		}
	}
	return gone
}
