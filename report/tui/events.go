// SPDX-License-Identifier: Apache-2.0

package tui

import (
	"cmp"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// happening is something that happened while the screen was there.
type happening struct {
	time    uint64 // ns of the session's clock; 0: it belongs to no moment
	clock   string // "12:03:04"
	text    string
	sign    rune // in a timeline; 0: none
	process ledger.ProcessID
	style   style
}

const (
	signOOM  = '✗'
	signLeak = '▲'
	signEnd  = '◆'

	maxHappenings = 200
	maxKnown      = 1 << 14 // leaks and processes that were told of
)

// chronicle has what happened last.
type chronicle struct {
	list  []happening // by time
	told  int         // ever
	leaks map[leakKey]bool
	ended map[ledger.ProcessID]bool
	begun bool
}

type leakKey struct {
	process ledger.ProcessID
	gpu     gpuKey
	frame   report.LineKey
}

func newChronicle() *chronicle {
	return &chronicle{leaks: map[leakKey]bool{}, ended: map[ledger.ProcessID]bool{}}
}

func (c *chronicle) add(h happening) {
	if len(c.list) >= maxHappenings {
		c.list = slices.Delete(c.list, 0, maxHappenings/4)
	}
	c.list = append(c.list, h)
	c.told++
}

// last returns the latest, nil if nothing happened.
func (c *chronicle) last() *happening {
	if len(c.list) == 0 {
		return nil
	}
	return &c.list[len(c.list)-1]
}

// clockAt returns the wall clock at a time of the session: "12:03:04".
func clockAt(s *ledger.Snapshot, time uint64) string {
	return s.Wall.Add(-nanoseconds(report.Minus(s.End, time))).Format("15:04:05")
}

// take notes what a moment has that the one before had not.
func (c *chronicle) take(b *books) {
	s := b.Snapshot
	if len(c.leaks) > maxKnown || len(c.ended) > maxKnown {
		clear(c.leaks)
		clear(c.ended)
		c.begun = false
	}
	for i := range b.OOMs {
		c.outOfMemory(b, &b.OOMs[i])
	}
	c.newLeaks(b)
	for i := range s.Processes {
		p := &s.Processes[i]
		key := p.ID()
		if p.End == 0 || c.ended[key] {
			continue
		}
		c.ended[key] = true
		if !c.begun && report.Minus(s.End, p.End) > 2e9 { // old news
			continue
		}
		how := " ended"
		if p.Replaced {
			how = " executed another program"
		}
		c.add(happening{time: p.End, clock: clockAt(s, p.End), text: tidy(format.Process(p)) + how, sign: signEnd, process: key, style: dim})
	}
	c.begun = true
	if note := tidy(b.Note); note != "" {
		c.add(happening{clock: clockAt(s, s.End), text: note, style: warning})
	}
}

func (c *chronicle) outOfMemory(b *books, o *report.OOM) {
	s := b.Snapshot
	name, key := format.Process(&ledger.Process{PID: o.PID, Comm: o.Comm}), ledger.ProcessID{}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PID == o.PID && (key == ledger.ProcessID{} || p.Begin <= o.Time) {
			name, key = format.Process(p), p.ID()
		}
	}
	text := tidy(name) + " " + o.Text()
	if b.Stacks != nil && o.Stack != 0 {
		list := frames.Visible(b.Stacks, o.Stack, o.API)
		f := list[frames.Headline(list)]
		f.File = shortFile(f.File)
		front, back := frames.Parts(&f)
		text += " at " + tidy(format.Join(front, back))
	}
	c.add(happening{time: o.Time, clock: clockAt(s, o.Time), text: text, sign: signOOM, process: key, style: alarm})
}

// maxNewLeaks is how many leaks of one moment are told one by one, the largest.
const maxNewLeaks = 5

func (c *chronicle) newLeaks(b *books) {
	var list []*line
	for i := range b.lines {
		if l := &b.lines[i]; l.class() == verdict.Leaking && !c.leaks[b.leakKey(l)] {
			c.leaks[b.leakKey(l)] = true
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, func(x, y *line) int { return cmp.Compare(x.own, y.own) })
	if more := len(list) - maxNewLeaks; more > 0 {
		c.add(happening{clock: clockAt(b.Snapshot, b.Snapshot.End), text: format.Count(uint64(more), "more line") + " leak", style: alarm})
		list = list[more:]
	}
	for _, l := range list {
		p := &b.Snapshot.Processes[l.process]
		front, back := frames.Parts(&b.frames[l.frame])
		text := tidy(format.Process(p)) + ": " + format.Join(front, back) + " leaks: " + format.SignedBytes(l.own)
		if n := report.PerMinute(l.growth, b.half); n > 0 {
			text += ", " + format.Difference(n) + "/min"
		}
		c.add(happening{time: b.Snapshot.End, clock: clockAt(b.Snapshot, b.Snapshot.End), text: text, sign: signLeak, process: p.ID(), style: alarm})
	}
}

func (b *books) leakKey(l *line) leakKey {
	return leakKey{b.Snapshot.Processes[l.process].ID(), b.gpuKey(l.gpu), report.LineKeyOf(&b.frames[l.frame])}
}

func nanoseconds(ns uint64) time.Duration { return time.Duration(min(ns, 1<<62)) }
