// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"errors"
	"fmt"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Defaults and limits of an archive.
const (
	DefaultSize    = 1 << 30
	DefaultAge     = 30 * 24 * time.Hour
	DefaultRecords = 100

	LeastSize = 1 << 20 // of an archive

	mostFile    = 64 << 20 // bytes of a capture until the next one begins
	filesOfSize = 16       // so much of the archive's size at most
	defaultTime = time.Hour
)

// Options configures a Writer.
type Options struct {
	Host string // name of the machine
	Tool string // writing program, "vramprof 1.2.3"

	Size     int64         // bytes of all captures and indexes; 0: DefaultSize
	Age      time.Duration // of the last input of the oldest capture; 0: DefaultAge
	FileSize int64         // bytes of a capture until the next one begins; 0: 1/16 of Size, at most 64 MiB
	FileTime time.Duration // likewise; 0: 1 hour

	// Opening tells other books what makes them equal to those that the Writer is fed beside. It is
	// called from Apply or Tell, before each capture but the first. nil: there is one capture only.
	Opening func(to ledger.Books)

	// Note gets a sentence when writing fails, and one when it goes on. It is called from a
	// goroutine of the Writer; nil: nobody is told.
	Note func(text string)

	Clock func() uint64    // ns of CLOCK_MONOTONIC; nil: the kernel half's
	Wall  func() time.Time // nil: the system's

	step     time.Duration // between looks at what there is to do; 0: 250 ms
	again    time.Duration // until a disk that failed is tried again; 0: a minute
	sync     time.Duration // between syncs; 0: syncInterval
	interval time.Duration // capture.Options.Interval
}

const (
	stepInterval  = 250 * time.Millisecond
	againInterval = time.Minute
	// A power cut loses at most so much of the history, and what the current capture has written
	// since.
	syncInterval = 15 * time.Second
)

func (o *Options) complete() error {
	if o.Size == 0 {
		o.Size = DefaultSize
	}
	if o.Size < LeastSize {
		return fmt.Errorf("an archive needs at least %d bytes", LeastSize)
	}
	if o.Age < 0 || o.FileTime < 0 || o.FileSize < 0 {
		return errors.New("a limit of the archive is negative")
	}
	if o.Age == 0 {
		o.Age = DefaultAge
	}
	if o.FileSize == 0 {
		o.FileSize = min(o.Size/filesOfSize, mostFile)
	}
	for _, d := range []struct {
		of    *time.Duration
		value time.Duration
	}{{&o.FileTime, defaultTime}, {&o.step, stepInterval}, {&o.again, againInterval}, {&o.sync, syncInterval}} {
		if *d.of == 0 {
			*d.of = d.value
		}
	}
	return nil
}
