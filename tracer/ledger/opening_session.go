// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
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
	c := carrier{l: l, from: in, rest: in.Data}
	l.spend(len(in.Data) + 16*(len(in.Stacks)+len(in.Texts)))
	var kind carriedKind
	num(&c, &kind)
	c.check(in.Piece == o.pieces && (kind == carriedSession) == (in.Piece == 0))
	if !c.bad {
		takePiece(&c, l, kind)
	}
	if o.pieces++; c.bad || kind == carriedEnd {
		l.endOpening(!c.bad)
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
	num(c, &version)
	if c.check(version == carriedVersion); c.bad {
		return
	}
	if !c.reads() && c.renumber.whole {
		opened = l.openedAt
	}
	nums(c, &opened, &l.newest, &l.purgeAt, &l.firstUsage, &l.gpus.read, &l.lost.homeless)
	if c.reads() {
		l.openedAt = opened
	}
	endings, renewed := mostEndings(l), uint64(0) // earlier versions count those of all processes together
	if nums(c, &endings, &renewed); c.reads() {
		l.opening.endings = endings
	}
	c.flags(&l.opened)
	carryStats(c, l)
	carryTables(c, l)
	carryGone(c, l)
	carryWarnings(c, l)
	carryMap(c, &l.gpus.used, maxDevices, func(uuid *string, m **usedMarks) {
		if c.reads() {
			*m = &usedMarks{}
		}
		c.text(uuid)
		amount(c, &(*m).step, maxSum)
		var before uint64
		carryList(c, &(*m).list, maxMarks, func(x *usedMark) {
			nums(c, &x.time, &x.used)
			c.check(x.time >= before)
			before = x.time
		})
	})
}

func carryStats(c *carrier, l *Ledger) {
	was := l.stats
	defer func() {
		if !c.reads() {
			l.stats = was
		}
	}()
	s := &l.stats
	if !c.reads() && !c.renumber.whole {
		leaveOutPurged(l, s)
	}
	nums(c, &s.Events, &s.Lost, &s.UnmatchedFrees, &s.Reused, &s.Evicted, &s.UnknownSizes, &s.Stacks, &s.NoStack, &s.Torn, &s.OutOfMemory, &s.Folded)
	for _, m := range [...]*map[string]uint64{&s.Missing, &s.Truncated} {
		carryMap(c, m, maxDevices, func(reason *string, n *uint64) {
			c.text(reason)
			num(c, n)
		})
	}
	for _, m := range [...]*map[uint32]uint64{&l.lost.events, &l.lost.stacks} {
		carryMap(c, m, defaultMaxProcesses, func(pid *uint32, n *uint64) {
			num(c, pid)
			num(c, n)
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
		nums(c, &size, &limit)
		if c.reads() {
			s.Restore(size, limit)
		}
	}
}

// carryWarnings carries all warnings, except those of processes that are not told.
func carryWarnings(c *carrier, l *Ledger) {
	used := l.quotas[tableWarnings].Used()
	texts := slices.Clone(l.warnings)
	if !c.reads() {
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
	most(c, &used, maxWarnings)
	carryList(c, &texts, maxWarnings+1, func(text *string) {
		c.text(text)
		of := uint32(none)
		if !c.reads() {
			of = c.renumber.member[l.warned[*text]]
		}
		if num(c, &of); c.reads() {
			l.addWarning(*text, nil)
			l.opening.warned[*text] = of
		}
	})
	if c.reads() {
		l.quotas[tableWarnings].Add(used - l.quotas[tableWarnings].Used())
	}
}

// carryGone carries the sums of processes that left the books, and of those that are not told.
func carryGone(c *carrier, l *Ledger) {
	x := &l.gone.Forgotten
	if !c.reads() {
		gone := l.gone.list()
		if !c.renumber.whole {
			gone = forgottenHere(l)
		}
		x = &gone
	}
	nums(c, &x.Before, &x.Processes, &x.Failures, &x.FailedBytes, &x.OutOfMemory, &x.Peaks, &x.HighestPeak)
	sums := x.Sums
	carryList(c, &sums, maxDevices*(int(lastKind)+2)*2, func(s *ForgottenSum) {
		c.text(&s.UUID)
		c.kind(&s.Kind)
		c.flags(&s.Host)
		nums(c, &s.AllocObjects, &s.FreeObjects, &s.AllocBytes, &s.FreeBytes)
		if c.reads() {
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
