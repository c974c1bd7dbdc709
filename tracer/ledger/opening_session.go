// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// takeCarried takes a piece of an opening.
func (l *Ledger) takeCarried(in *Carried) {
	if l.full() || l.opening == nil && (in.Piece != 0 || l.numbers > 0) || l.opening != nil && !l.carrying {
		return
	}
	if l.opening == nil {
		l.opening, l.carrying = &opening{figures: map[*process]uint64{}, warned: map[string]uint32{}}, true
	}
	o := l.opening
	c := carrier{codec.NewReader(in.Data, in.Stacks, in.Texts, l.spend), l, nil}
	l.spend(len(in.Data) + 16*(len(in.Stacks)+len(in.Texts)))
	var kind carriedKind
	codec.Num(c.Codec, &kind)
	c.Check(in.Piece == o.pieces && (kind == carriedSession) == (in.Piece == 0))
	if !c.Bad {
		takePiece(&c, l, kind)
	}
	if o.pieces++; c.Bad || kind == carriedEnd {
		l.endOpening(!c.Bad)
	}
}

// endOpening makes further pieces ineffective, and tells the observer what lives.
func (l *Ledger) endOpening(complete bool) {
	l.carrying = false
	for text, n := range l.opening.warned {
		if int(n) < len(l.procs) {
			l.warned[text] = l.procs[n].member
		}
	}
	*l.opening = opening{pieces: l.opening.pieces, whole: complete, rounded: l.opening.rounded}
	if !complete {
		l.warn("the beginning of the capture is damaged or from a later vramprof: memory allocated before it is missing")
	}
	if !l.opening.rounded {
		for _, p := range l.procs {
			p.guessRounding()
		}
	}
	if l.observer != nil {
		l.tellOpening()
	}
}

func takePiece(c *carrier, l *Ledger, kind carriedKind) {
	switch kind {
	case carriedSession:
		carrySession(c, l)
	case carriedProcess:
		takeProcess(c, l)
	case carriedSites:
		takeSites(c, l)
	case carriedEntries:
		takeEntries(c, l)
	case carriedMarks:
		carryMarks(c, l)
	case carriedEnd:
	default:
		takeRest(c, l, kind)
	}
}

// tellOpening tells the observer what lives, in the order of its times.
func (l *Ledger) tellOpening() {
	type begun struct {
		time uint64
		tell func()
	}
	var list []begun
	for _, p := range l.procs {
		for s := range p.all() {
			if s.kind == aliased {
				continue
			}
			for b := s.first; b != 0; b = p.entries.at(b).next {
				list = append(list, begun{p.entries.at(b).time, func() { l.observer.Allocated(p.allocation(b), p.entries.at(b).time) }})
			}
		}
		if p.physical == nil {
			continue
		}
		for x := range p.physical.mappings.From(0) {
			m := *x
			list = append(list, begun{m.Value.time, func() { p.tellMapped(&m, m.Value.time) }})
		}
	}
	l.spend(64 * len(list))
	slices.SortStableFunc(list, func(a, b begun) int { return cmp.Compare(a.time, b.time) })
	for _, x := range list {
		x.tell()
	}
}

// carrySession carries what belongs to no process.
func carrySession(c *carrier, l *Ledger) {
	version, opened := uint32(carriedVersion), max(l.newest, l.options.Begin)
	codec.Num(c.Codec, &version)
	if c.Check(version == carriedVersion); c.Bad {
		return
	}
	if !c.Reads() && c.renumber.whole {
		opened = l.openedAt
	}
	codec.Nums(c.Codec, &opened, &l.newest, &l.purgeAt, &l.firstUsage, &l.gpus.read, &l.lost.homeless)
	if c.Reads() {
		l.openedAt = opened
	}
	endings, renewed := mostEndings(l), uint64(0) // earlier versions count those of all processes together
	if codec.Nums(c.Codec, &endings, &renewed); c.Reads() {
		l.opening.endings = endings
	}
	c.Flags(&l.opened)
	carryStats(c, l)
	carryTables(c, l)
	carryGone(c, l)
	carryWarnings(c, l)
	codec.Map(c.Codec, &l.gpus.used, maxDevices, func(uuid *string, m **usedMarks) {
		if c.Reads() {
			*m = &usedMarks{}
		}
		c.Text(uuid)
		codec.Amount(c.Codec, &(*m).step, maxSum)
		var before uint64
		codec.List(c.Codec, &(*m).list, maxMarks, func(x *usedMark) {
			codec.Nums(c.Codec, &x.time, &x.used)
			c.Check(x.time >= before)
			before = x.time
		})
	})
}

// carryMarks carries what the marks of GPUs have of traced processes: the session's piece has the
// rest.
func carryMarks(c *carrier, l *Ledger) {
	lists := map[string][]usedMark{}
	if !c.Reads() {
		for uuid, m := range l.gpus.used {
			lists[uuid] = m.list
		}
	}
	codec.Map(c.Codec, &lists, maxDevices, func(uuid *string, list *[]usedMark) {
		c.Text(uuid)
		codec.List(c.Codec, list, maxMarks, func(x *usedMark) {
			codec.Amount(c.Codec, &x.traced, maxSum)
			codec.Amount(c.Codec, &x.gap, maxSum)
		})
		m := l.gpus.used[*uuid]
		if c.Check(m != nil && len(m.list) == len(*list)); c.Bad || !c.Reads() {
			return
		}
		for i := range *list {
			m.list[i].traced, m.list[i].gap = (*list)[i].traced, (*list)[i].gap
		}
	})
}

func carryStats(c *carrier, l *Ledger) {
	was := l.stats
	defer func() {
		if !c.Reads() {
			l.stats = was
		}
	}()
	s := &l.stats
	if !c.Reads() && !c.renumber.whole {
		leaveOutPurged(l, s)
	}
	codec.Nums(c.Codec, &s.Events, &s.Lost, &s.UnmatchedFrees, &s.Reused, &s.Evicted, &s.UnknownSizes, &s.Stacks, &s.NoStack, &s.Torn, &s.OutOfMemory, &s.Folded)
	for _, m := range [...]*map[string]uint64{&s.Missing, &s.Truncated} {
		codec.Map(c.Codec, m, maxDevices, func(reason *string, n *uint64) {
			c.Text(reason)
			codec.Num(c.Codec, n)
		})
	}
	for _, m := range [...]*map[uint32]uint64{&l.lost.events, &l.lost.stacks} {
		codec.Map(c.Codec, m, defaultMaxProcesses, func(pid *uint32, n *uint64) {
			codec.Num(c.Codec, pid)
			codec.Num(c.Codec, n)
		})
	}
}

// leaveOutPurged changes stats as if the processes that lost their entries had left the books.
func leaveOutPurged(l *Ledger, s *Stats) {
	for _, p := range l.procs {
		if p.purged {
			s.UnknownSizes -= p.unsized
			for x := range p.all() { // of late events
				s.Reused += x.early.objects
			}
		}
	}
}

// carryTables carries the sizes of tables. What processes hold of them follows from what is carried
// of the processes.
func carryTables(c *carrier, l *Ledger) {
	for t := range l.quotas {
		s := &l.quotas[t]
		size, limit := s.Size(), s.Limit()
		codec.Nums(c.Codec, &size, &limit)
		if c.Reads() {
			s.Restore(size, limit)
		}
	}
}

// carryWarnings carries all warnings, except those of processes that are not told.
func carryWarnings(c *carrier, l *Ledger) {
	used := l.quotas[tableWarnings].Used()
	texts := slices.Clone(l.warnings)
	if !c.Reads() {
		for _, p := range l.procs {
			if p.purged && !c.renumber.whole {
				used -= int(p.held[tableWarnings])
			}
		}
		texts = slices.DeleteFunc(texts, func(text string) bool {
			_, told := c.renumber.member[l.warned[text]]
			return !told
		})
	}
	codec.Most(c.Codec, &used, maxWarnings)
	codec.List(c.Codec, &texts, maxWarnings+1, func(text *string) {
		c.Text(text)
		of := uint32(none)
		if !c.Reads() {
			of = c.renumber.member[l.warned[*text]]
		}
		if codec.Num(c.Codec, &of); c.Reads() {
			l.addWarning(*text, nil)
			l.opening.warned[*text] = of
		}
	})
	if c.Reads() {
		l.quotas[tableWarnings].Add(used - l.quotas[tableWarnings].Used())
	}
}

// carryGone carries the sums of processes that left the books, and of those that are not told.
func carryGone(c *carrier, l *Ledger) {
	x := &l.gone.Forgotten
	if !c.Reads() {
		gone := l.gone.list()
		if !c.renumber.whole {
			gone = forgottenHere(l)
		}
		x = &gone
	}
	codec.Nums(c.Codec, &x.Before, &x.Processes, &x.Failures, &x.FailedBytes, &x.OutOfMemory, &x.Peaks, &x.HighestPeak)
	sums := x.Sums
	codec.List(c.Codec, &sums, maxDevices*(int(lastKind)+2)*2, func(s *ForgottenSum) {
		c.Text(&s.UUID)
		c.kind(&s.Kind)
		c.Flags(&s.Host)
		codec.Nums(c.Codec, &s.AllocObjects, &s.FreeObjects, &s.AllocBytes, &s.FreeBytes)
		if c.Reads() {
			to := l.gone.sum(s.UUID, s.Kind, s.Host)
			uuid := to.UUID
			*to = *s
			to.UUID = uuid
		}
	})
}

// forgottenHere returns what Snapshot.Forgotten would be without the processes that lost their
// entries.
func forgottenHere(l *Ledger) Forgotten {
	gone := forgotten{Forgotten: l.gone.Forgotten}
	for _, s := range l.gone.list().Sums {
		*gone.sum(s.UUID, s.Kind, s.Host) = s
	}
	for _, p := range l.procs {
		if p.purged {
			gone.add(p)
			gone.Before = max(gone.Before, p.End+1)
		}
	}
	return gone.list()
}

// mostEndings returns how many contexts ended in the process with the most.
func mostEndings(l *Ledger) (most uint64) {
	for _, p := range l.procs {
		most = max(most, p.endings)
	}
	return most
}
