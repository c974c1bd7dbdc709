// SPDX-License-Identifier: Apache-2.0

package ledger

// Checkpoint is Opening for the same session: the books that are made from it are those of this
// ledger in everything, Snapshot.Opened included. A reader of a capture begins with the checkpoint
// before a moment instead of the first event.
//
// It returns false, and tells nothing, if it would take more than about most bytes in a capture, or
// if a process is in the books whose entries were purged: an opening leaves those out.
func (l *Ledger) Checkpoint(to Books, most int) bool {
	if l.carrying || most < checkpointBytes+liveBytes*len(l.live)+siteBytes*len(l.siteOf) {
		return false
	}
	for n := range l.procs {
		if p := &l.procs[n]; p.purged && !p.free {
			return false
		}
	}
	o := l.newOpener(to)
	o.whole = true
	o.tell()
	for _, n := range o.processes {
		if p := &l.procs[n]; p.End == 0 && len(p.system) > 0 {
			in := SystemReading{PID: p.PID, Time: p.system[0].Time, Cut: p.system[0].Cut}
			for _, x := range p.system {
				in.On = append(in.On, SystemOn{x.UUID, x.Bytes})
			}
			to.Tell(in)
		}
	}
	return true
}

// Restored reports whether the books were made from an opening or a checkpoint that was whole.
func (l *Ledger) Restored() bool { return l.opening != nil && l.opening.whole }

// Rough sizes of a checkpoint in a capture, compressed.
const (
	checkpointBytes = 8 << 10
	liveBytes       = 12 // of a live allocation
	siteBytes       = 250
)
