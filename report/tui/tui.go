// SPDX-License-Identifier: Apache-2.0

// Package tui shows the books of a running session, or of a capture that is played, on a terminal
// that is redrawn as they change: GPUs, processes, lines of code and memory over time.
//
//	p := tea.NewProgram(tui.New(tui.Options{}))
//	go func() {
//		for snapshot := range every(time.Second) {
//			p.Send(tui.Moment{Snapshot: snapshot, Judged: tui.Judge(snapshot, stacks), Stacks: stacks})
//		}
//	}()
//	_, err := p.Run()
package tui

import (
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Moment is the books at one instant, as the screen shows them. It is the message that updates a
// Model.
type Moment struct {
	Snapshot *ledger.Snapshot
	Judged   *Verdicts        // may be of an earlier Snapshot: judging costs more; nil: not judged yet
	OOMs     []report.OOM     // out-of-memory errors since the Moment before; Time, PID, Size and Stack are used
	Stacks   callstack.Stacks // used in several goroutines at once
	Steps    *steps.Session   // the steps of trainings; nil: unknown
	Others   []Other          // what else keeps GPUs or their memory; also processes that are traced, which are left out
	Speed    float64          // of a capture that is played, relative to real time; 0: a live session
	Ended    bool             // no further Moment will differ
	Note     string           // what happened last, such as an error; untrusted; "": nothing new
}

// high returns the books whose bytes are shown: of when each process had most since the Moment
// before, where they have them.
func (x *Moment) high() *ledger.Snapshot { return x.Snapshot.AtHighest() }

// above returns a later Moment, with the highest of both if this one will not be shown.
func (x *Moment) above(later Moment) Moment {
	if high := later.high().Above(x.high()); high != later.high() {
		s := *later.Snapshot
		s.Highest = high
		later.Snapshot = &s
	}
	return later
}

// Options are what a screen starts with, and what its keys do.
type Options struct {
	Sort string // name of the column to sort by, one of Columns; "": by memory
	Flat bool   // lines as a list instead of a tree

	// User returns the name of a user, "" if it has none; nil: numbers are shown.
	User func(uid uint32) string
	// Profile writes a profile of a snapshot and returns its path (key w). It is called outside of
	// Update; nil: not available.
	Profile func(*ledger.Snapshot) (path string, err error)
	// Capture starts or ends a capture from here on, and returns its path (key s). It is called
	// outside of Update; nil: not available, as when a capture is played.
	Capture func(on bool) (path string, err error)
}
