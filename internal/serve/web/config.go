// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"io"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/metrics"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Session is the session that a Server serves. Its methods may be called from any goroutine.
type Session interface {
	callstack.Stacks

	// Glance returns a copy of the books without Snapshot.Stuck and Snapshot.Peaks, and with
	// Snapshot.Highest since it was called last.
	Glance() *ledger.Snapshot
	// Snapshot returns a copy of the books, and takes time in proportion to the live tensors.
	Snapshot() *ledger.Snapshot
	// Own returns what vramprof itself uses and lost.
	Own() metrics.Own
}

// Config is what a Server serves.
type Config struct {
	Session Session
	Version string
	Ready   func() bool // reports whether tracing has begun and has not ended
	Archive Archive     // nil: none
	// TensorBlocks returns the live tensors of a process, and whether it is traced; nil: there are
	// none.
	TensorBlocks func(pid uint32) (list []ledger.TensorBlock, traced bool)
	Steps        func() *steps.Session // returns the steps of trainings up to now; nil: they are unknown
	// Names besides the machine's that clients may ask for, with or without a port: those of a
	// reverse proxy or a DNS server.
	Hosts []string
	// Users of this machine besides root and the one of this process who see the processes of all
	// users.
	Users []uint32
	// Passwords reports whether requests come only with a right password; nil: they do not.
	Passwords func() bool

	MetricsPID bool           // metrics by process, not only by workload
	Verdicts   *watch.Watcher // of the session; nil: one that only the server asks
}

// Archive is what vramprof has written about earlier moments.
type Archive interface {
	// At returns the books as of a moment, and their stacks, which are valid until close. If there
	// is nothing of this moment, the error is one that NoMoment made.
	At(ctx context.Context, t time.Time) (s *ledger.Snapshot, st callstack.Stacks, done io.Closer, err error)
}

// Past is what an Archive may have besides the books of moments.
type Past interface {
	// Chart returns what At returns, and the timeline until then, which is about so long or
	// shorter.
	Chart(ctx context.Context, t time.Time, length time.Duration) (s *ledger.Snapshot, st callstack.Stacks, tl *timeline.Timeline, done io.Closer, err error)
	// Span returns the first and the last moment; false: there is none.
	Span() (from, to time.Time, ok bool)
	// Errors returns out-of-memory errors, the latest first, and how many more there were.
	Errors() (list []html.Error, more uint64)
}

// Overview is what an Archive may have besides the books of moments.
type Overview interface {
	// Overview lists the processes, out-of-memory errors and records of the archive, of one
	// process, by pid or name, and of one pod; "" is all.
	Overview(process, pod string) (*report.Archive, error)
}

var errNoArchive = notFound("there is no archive (start vramprof serve with --archive)")

// NoMoment returns the error of an Archive that has nothing of a moment.
func NoMoment(text string) error { return notFound(text) }

// stepsOf returns the steps of trainings for an answer; nil for an earlier moment.
func stepsOf(q *query, c *Config) *steps.Session {
	if !q.at.IsZero() {
		return nil
	}
	return c.steps()
}

// steps returns the steps of trainings up to now, or nil.
func (c *Config) steps() *steps.Session {
	if c.Steps == nil {
		return nil
	}
	return c.Steps()
}
