// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	maxRows = 1 << 14

	// Events that are looked at before they are played; other inputs count as events of their size.
	lookAhead = 1 << 16
	eventSize = 128

	// How many events of a session can be searched for moments in the time that the snapshot of one
	// site takes.
	siteCost = 4

	// Moments that are no longer wanted and stay until there are this many: dropping them takes
	// time.
	unwanted = 32
)

// Play plays a session once, into an empty ledger, books, and takes snapshots at its
// moments, of which the last is end: begin, end, the highest use of each step between them, and the
// peaks that the caller knows. So no peak is missed, however short. What happened before begin has
// no mark, but counts in the sizes.
//
// That a moment was the highest of its step shows only afterwards. So the inputs wait until it is
// known; at most as many wait as Play looks ahead. Of a step whose highest use may still come, the
// snapshot of its highest moment so far is replaced. Where
// many processes grow, that takes longer than to search the whole session: then Play searches it
// with scout, a second player at the begin, before it goes on.
func Play(p, scout Player, m Moments, books ledger.Books, take func(at uint64) *ledger.Snapshot) (*Timeline, *Sizes, error) {
	a := newAhead(p, newInUse(m), books, take)
	a.scout = scout
	return a.play(lookAhead)
}

func newAhead(p Player, find *inUse, books ledger.Books, take func(at uint64) *ledger.Snapshot) *ahead {
	b := newBuilder()
	return &ahead{
		player: p, find: find, b: b, to: &observer{Books: books, sizes: b.sizes}, take: take,
		room: len(find.highest) + 2 + MaxPeaks + unwanted,
	}
}

// timed is an input of the books that is not an event. It comes before the event with that index.
type timed struct {
	ledger.Input
	time   uint64
	event  int
	weight int // in events
}

// weightOf returns about how many events take as much memory.
func weightOf(in ledger.Input) int {
	size := 1024
	switch in := in.(type) {
	case ledger.BlockList:
		size += 24 * len(in.Blocks)
	case ledger.Walk:
		size += 40*len(in.Storages) + 512*len(in.Holders)
	case ledger.TensorReading:
		for i := range in.Totals {
			size += 128 + 32*len(in.Totals[i].Classes)
		}
	case ledger.UsageReading:
		size += 96 * len(in.Usages)
	case ledger.Carried:
		size += len(in.Data) + 8*len(in.Stacks) + 32*len(in.Texts)
	}
	return size / eventSize
}

// ahead takes the inputs of a session, looks for moments, and plays the inputs when it knows which
// of their moments are wanted.
type ahead struct {
	player Player
	scout  Player // nil: snapshots are replaced, however many
	known  bool   // find has the whole session
	find   *inUse
	to     *observer
	take   func(at uint64) *ledger.Snapshot
	b      *builder
	room   int // for moments

	events []ledger.Event // not played yet, from event on
	inputs []timed        // likewise, from input on
	event  int
	input  int
	early  []timed // inputs before older events that were played
	weight int     // of inputs that wait
	most   int     // how much may wait until some of it is played
	step   int
	begun  bool   // the first moment is there
	played uint64 // up to here
	clock  uint64 // of events
	latest uint64 // time of another input
	seen   int    // events
	taken  int    // snapshots
	err    error
}

func (a *ahead) play(most int) (*Timeline, *Sizes, error) {
	a.most, a.step = most, most
	if err := a.player.PlayTo(a.find.end, a); err != nil {
		return nil, nil, fmt.Errorf("play: %w", err)
	}
	if a.err == nil {
		a.show(a.find.end, a.find.moments(a.find.end))
	}
	if a.err != nil {
		return nil, nil, a.err
	}
	a.b.trim(a.find.moments(a.find.end))
	a.b.finish(a.to)
	return a.b.t, a.b.sizes, nil
}

// Apply implements ledger.Books.
func (a *ahead) Apply(e *ledger.Event) {
	if a.err != nil {
		return
	}
	if !a.known {
		a.find.Apply(e)
	}
	a.clock = max(a.clock, e.Time)
	a.seen++
	if a.events = append(a.events, *e); a.waiting() >= a.most {
		a.pass()
	}
}

// Tell implements ledger.Books.
func (a *ahead) Tell(in ledger.Input) {
	if a.err != nil {
		return
	}
	if !a.known {
		a.find.Tell(in)
	}
	x := timed{in, a.player.Time(), len(a.events), weightOf(in)}
	a.latest = max(a.latest, x.time)
	a.inputs, a.weight = append(a.inputs, x), a.weight+x.weight
	if a.waiting() >= a.most {
		a.pass()
	}
}

// waiting returns how many events wait, and how much else.
func (a *ahead) waiting() int { return len(a.events) - a.event + a.weight }

func (a *ahead) tell(in *timed) {
	a.weight -= in.weight
	a.to.Tell(in.Input)
}

// pass plays inputs whose moments are settled. Where too many others wait, it takes the moments as
// they seem now.
func (a *ahead) pass() {
	until := a.settled(false)
	wanted := a.find.moments(until)
	if superfluous := a.taken - len(wanted); a.scout != nil && !a.known && superfluous*len(a.b.t.Sites)*siteCost > a.seen {
		if a.search(); a.err != nil {
			return
		}
		wanted = a.find.moments(until)
	}
	a.show(until, wanted)
	if a.playTo(until, false); a.waiting() >= 2*a.step && !a.stopped() {
		until = a.settled(true)
		a.show(until, a.find.moments(until))
		a.playTo(until, true)
	}
	a.most = a.waiting() + a.step
	a.forget()
}

// stopped reports whether nothing more can be played.
func (a *ahead) stopped() bool {
	if err := a.player.Err(); err != nil && a.err == nil {
		a.err = fmt.Errorf("play: %w", err)
	}
	return a.err != nil
}

// search finds the moments of the whole session.
func (a *ahead) search() {
	a.find = newInUse(a.find.Moments)
	a.known = true
	if err := a.scout.PlayTo(a.find.end, a.find); err != nil {
		a.err = fmt.Errorf("look for peaks: %w", err)
	}
}

// settled is inUse.settled for what was seen so far.
func (a *ahead) settled(forced bool) uint64 {
	if !a.known {
		return a.find.settled(a.latest, forced)
	}
	u := inUse{begin: a.find.begin, end: a.find.end, clock: a.clock}
	return u.settled(a.latest, forced)
}

// show plays to those of the wanted moments that lie behind what was played, and takes snapshots.
func (a *ahead) show(until uint64, wanted []uint64) {
	for _, at := range wanted {
		if a.err != nil {
			return
		}
		if a.begun && at < a.played {
			continue
		}
		if a.playTo(at, true); a.stopped() {
			return
		}
		if len(a.b.t.Times) == a.room {
			a.b.keep(wanted)
		}
		a.b.replace(a.room, at, a.take(at))
		a.taken++
		if len(a.b.t.Rows) > maxRows {
			a.err = fmt.Errorf("more than %d processes and GPUs of theirs are too many for a timeline (other views show them)", maxRows)
		}
		if !a.begun {
			a.begun, a.to.ooms, a.to.large = true, nil, nil
		}
	}
	a.played = max(a.played, until)
}

// playTo plays the inputs up to a time, and stops at the first event after it. If it may pass by an
// input, it leaves those after the time for later where older events follow, as a Player does.
func (a *ahead) playTo(time uint64, passBy bool) {
	for len(a.early) > 0 && a.early[0].time <= time {
		a.tell(&a.early[0])
		a.early = a.early[1:]
	}
	if len(a.early) > 0 && !passBy {
		return
	}
	for {
		stop := len(a.events)
		if a.input < len(a.inputs) {
			stop = a.inputs[a.input].event
		}
		for ; a.event < stop; a.event++ {
			e := &a.events[a.event]
			if e.Time > time {
				return
			}
			a.to.Apply(e)
		}
		if a.input == len(a.inputs) {
			return
		}
		in := &a.inputs[a.input]
		if in.time > time {
			if _, opens := in.Input.(ledger.Carried); !passBy || opens || in.time-time > eventLag {
				return
			}
			a.early = append(a.early, *in)
		} else {
			a.tell(in)
		}
		a.input++
	}
}

// forget drops what was played.
func (a *ahead) forget() {
	a.events = a.events[:copy(a.events, a.events[a.event:])]
	n := copy(a.inputs, a.inputs[a.input:])
	clear(a.inputs[n:])
	a.inputs = a.inputs[:n]
	for i := range a.inputs {
		a.inputs[i].event -= a.event
	}
	a.event, a.input = 0, 0
}

// Player plays a session's inputs from its current position up to a moment.
type Player interface {
	PlayTo(time uint64, into ledger.Books) error

	// Time returns when the input came that PlayTo is telling books, if it is not an event.
	Time() uint64

	// Err returns the limit that what was played has reached: the books must not go on.
	Err() error
}

// Build plays a session into an empty ledger, books, and takes snapshots at the given times, which
// rise. What happened before the first time has no mark, but counts in the sizes.
func Build(p Player, times []uint64, books ledger.Books, take func(at uint64) *ledger.Snapshot) (*Timeline, *Sizes, error) {
	b := newBuilder()
	o := &observer{Books: books, sizes: b.sizes}
	for i, at := range times {
		if err := p.PlayTo(at, o); err != nil {
			return nil, nil, fmt.Errorf("play to %s: %w", time.Duration(at-times[0]), err)
		}
		b.look(i, len(times), at, take(at))
		if len(b.t.Rows) > maxRows {
			return nil, nil, fmt.Errorf("more than %d processes and GPUs of theirs are too many for a timeline (other views show them)", maxRows)
		}
		if i == 0 {
			o.ooms, o.large = nil, nil
		}
	}
	b.finish(o)
	return b.t, b.sizes, nil
}

// Left returns what each process has on each GPU in a snapshot, as a timeline of that moment; of a
// process that has ended, what it had at its end.
func Left(s *ledger.Snapshot) *Timeline {
	x := *s
	x.Processes = slices.Clone(s.Processes)
	for i := range x.Processes {
		x.Processes[i].End = 0
	}
	b := newBuilder()
	b.look(0, 1, x.End, &x)
	b.finish(&observer{})
	return b.t
}
