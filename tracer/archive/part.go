// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// part is a capture that is being written.
type part struct {
	stored
	serial  uint32 // in its session
	handle  *os.File
	writer  *capture.Writer
	created time.Time // time of day
	at      uint64    // the same in ns of CLOCK_MONOTONIC
	synced  time.Time
	opened  int64                 // bytes that the opening took; 0: it is not complete
	failed  atomic.Pointer[error] // of the disk

	summary summary // set when the part is not current any more

	// The Writer's lock guards what follows while the part is current or next.
	begin   uint64 // when its content begins, ns of CLOCK_MONOTONIC
	end     uint64 // when that of the next one does
	applied uint64 // events, without those of the opening
	opening uint64 // events of the opening
}

// opener is a part while its opening is told.
type opener struct{ *part }

// Apply implements ledger.Books.
func (o opener) Apply(e *ledger.Event) {
	o.opening++
	o.writer.Apply(e)
}

// Tell implements ledger.Books.
func (o opener) Tell(in ledger.Input) { o.writer.Tell(in) }

func (p *part) apply(e *ledger.Event) {
	p.applied++
	p.writer.Apply(e)
}

func (p *part) fail(err error) { p.failed.CompareAndSwap(nil, &err) }

func (p *part) failure() error {
	if err := p.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// full reports whether the next part is due. One that is hardly more than its opening is not: else
// a small limit would begin one part after another. Without events a day is enough.
func (p *part) full(o *Options, now uint64, wall time.Time) bool {
	s := p.writer.Stored()
	if p.serial > 0 && !s.Opened {
		return false
	}
	if p.opened == 0 {
		p.opened = s.Bytes
	}
	if s.Bytes >= o.FileSize && s.Bytes >= 2*p.opened {
		return true
	}
	if now >= p.begin+uint64(o.FileTime) && p.applied > 0 {
		return true
	}
	return now >= p.begin+uint64(time.Minute) && day(p.created) != day(wall) || wall.Sub(p.wall(now)).Abs() > clockStep
}

// clockStep is by how much the clock may have been set, or the machine slept, until a new capture
// begins: a capture knows one difference between CLOCK_MONOTONIC and the time of day.
const clockStep = 2 * time.Second

// wall returns the time of day at a moment of the capture, as its Reader does.
func (p *part) wall(at uint64) time.Time { return p.created.Add(time.Duration(at - p.at)) }

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// lost returns how many events the file lacks.
func (p *part) lost() uint64 {
	s := p.writer.Stored()
	if p.serial > 0 && !s.Opened {
		return p.applied
	}
	all := p.applied + p.opening
	return all - min(s.Events, all)
}
