// SPDX-License-Identifier: Apache-2.0

// Package session runs the tracer once: it opens what tracing needs, drops privileges that are no
// longer needed, shows progress, and ends the session.
package session

import (
	"io"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/nvml"
	"github.com/vramprof/vramprof/tracer/oom"
)

// Config chooses what a session traces, and how.
type Config struct {
	Trace     tracer.Config
	Duration  time.Duration // 0: until Ctrl-C
	MaxMemory string        // "auto", or bytes
	Cache     Cache
	Mine      *regexp.Regexp // your own code; nil: all but libraries
	Tool      string         // that captures name
	Verbose   bool
	Stderr    io.Writer

	Writes []string // files that are written at the end, or for a folder a path in it
	Force  bool     // these files are replaced
	Screen bool     // the terminal becomes a screen

	Server string // socket of a vramprof serve
	Advice string // what to do instead of attaching if it runs; "": nothing is said

	Began     func()                 // is called when tracing begins; may be nil
	Confined  func()                 // is called when privileges are dropped after that; may be nil
	Quiet     bool                   // nobody is told that tracing has begun
	Skippable func(skip func() bool) // is told what ends the walks for holders early; may be nil
	Fail      func(error)            // gets an error to return after all results are written; may be nil
}

// Cache chooses where unwind tables of libraries are kept for later sessions.
type Cache struct {
	Dir   string
	Named bool // by the user, so that it is an error if it cannot be used
	Off   bool
}

// Session is one run of the tracer. Trace.Capture, Trace.OOM, the standard files of Trace, Began,
// Confined, Quiet and Stderr of its Config may be set until Open, and Began until Run.
type Session struct {
	Config

	tracer   *tracer.Tracer
	driver   *nvml.Driver
	warnings []string // about the host
	ooms     *oom.Recorder
	steps    *steps.Live // nil: they are not looked for
	memory   *ceiling.Watch
	exceeded atomic.Pointer[string] // why tracing ended early, nil if it did not
	failed   bool                   // Fail got an error
	ended    atomic.Bool            // Run has returned: all events are booked

	begins      *begins
	endProgress func()
	walking     func(done, of int) // is told of walks at the end
}

// Tracer returns the tracer, nil before Open.
func (s *Session) Tracer() *tracer.Tracer { return s.tracer }

// Driver returns the connection to the driver; nil without one. It is closed by Close.
func (s *Session) Driver() *nvml.Driver { return s.driver }

// Memory returns what keeps this process within its memory.
func (s *Session) Memory() *ceiling.Watch { return s.memory }

// Stacks returns the stacks of the session, in which the user's own code is marked.
func (s *Session) Stacks() callstack.Stacks { return frames.Mine(s.tracer, s.Mine) }

// Records returns the latest record of an out-of-memory error of each process.
func (s *Session) Records() map[uint32]string { return s.ooms.Paths() }

// FindSteps has the steps of trainings looked for. It is to be called before Open.
func (s *Session) FindSteps() {
	s.steps = &steps.Live{}
	s.Trace.Follow = s.steps
}

// Steps returns the steps of trainings up to a second ago, or at the end of the session all; nil
// without FindSteps.
func (s *Session) Steps() *steps.Session { return s.steps.Steps(s.ended.Load()) }

// Failed has an error returned after all results are written.
func (s *Session) Failed(err error) {
	s.failed = true
	if s.Fail != nil {
		s.Fail(err)
	}
}

// Snapshot returns the books of now, with what is only known at the end.
func (s *Session) Snapshot() *ledger.Snapshot { return s.warned(s.tracer.Snapshot()) }

// Glance is snapshot for a screen that is redrawn: see tracer.Glance.
func (s *Session) Glance() *ledger.Snapshot { return s.warned(s.tracer.Glance()) }

// warned adds the warnings that the tracer does not know to a snapshot.
func (s *Session) warned(snapshot *ledger.Snapshot) *ledger.Snapshot {
	snapshot.Warnings = append(append(snapshot.Warnings, s.warnings...), s.steps.Warnings()...)
	if s.driver != nil && s.driver.Unavailable() > 0 {
		snapshot.Warnings = append(snapshot.Warnings, "the driver did not report the memory of every process")
	}
	return snapshot
}
