// SPDX-License-Identifier: Apache-2.0

package growth

import "github.com/vramprof/vramprof/tracer/ledger/codec"

// Presumed is the past of a site whose entries are not traced all the time. It presumes that an
// entry lives on which was, when tracing paused, more than four times as old as those that were
// seen to be freed. It proves nothing: such an entry may have been freed, and never leaves a
// Presumed.
type Presumed struct {
	track Track
	// Longest life, in ns, of an entry that was seen to be freed in the latest phases that ended,
	// less for each of these since then, and in the phase that goes on.
	longest, now uint64
}

const maxLife = uint64(1) << 60

// NewPresumed returns the past of a site without entries.
func NewPresumed() *Presumed {
	x := &Presumed{}
	x.track.Start()
	return x
}

// Add adds a new entry of size bytes.
func (x *Presumed) Add(begin, time, size uint64) { x.track.Add(begin, time, size) }

// Free ends an entry that was seen to be freed.
func (x *Presumed) Free(begin, birth, time, size uint64) {
	x.now = max(x.now, min(minus(time, birth), maxLife))
	x.Remove(begin, birth, time, size)
}

// Remove ends an entry that nobody saw to be freed, unless a capture says that there is none.
func (x *Presumed) Remove(begin, birth, time, size uint64) {
	if w := &x.track.own.parts.list[x.track.own.index(begin, birth)]; w.live >= size && w.liveObjects > 0 {
		x.track.Remove(begin, birth, time, size)
	}
}

// margin is how many times older than those that were freed an entry must be: on a busy machine one
// step takes longer than another.
const margin = 4

// Lose ends the time in which an entry is followed. It lives on if it has clearly outlived all that
// were freed, by the time of the latest report: entries of a process that waits for a processor
// live long, and a phase often ends while it waits.
func (x *Presumed) Lose(begin, birth, latest, time, size uint64) {
	if minus(latest, birth) <= margin*max(x.longest, x.now) {
		x.Remove(begin, birth, time, size)
	}
}

// EndPhase ends a phase in which allocations were traced, before what is lost then.
func (x *Presumed) EndPhase() { x.longest, x.now = max(x.now, x.longest-x.longest/8), 0 }

// View is that of Track, of the entries that are presumed to live.
func (x *Presumed) View(begin, time uint64, list []Cohort) (View, bool) {
	return x.track.View(begin, time, 0, list)
}

// AppendPresumed packs a past that does not change any more.
func AppendPresumed(out []byte, x *Presumed) []byte {
	out = codec.AppendUvarints(out, x.longest, x.now)
	return Append(out, &x.track, nil) // it shares with none
}

// ReadPresumed reads what AppendPresumed packed, and returns the rest.
func ReadPresumed(in []byte) (*Presumed, []byte) {
	x, r := &Presumed{}, codec.Uvarints(in)
	r.Read(&x.longest, &x.now)
	return x, Read(r, &x.track, nil)
}

// Carry writes or reads it.
func (x *Presumed) Carry(c *codec.Codec) {
	codec.Most(c, &x.longest, maxLife)
	codec.Most(c, &x.now, maxLife)
	x.track.Carry(c, true)
	recent := x.track.HasRecent()
	if c.Flags(&recent); recent {
		x.track.CarryRecent(c, true)
	}
	c.Check(recent || x.track.own.shift <= RecentShift)
}
