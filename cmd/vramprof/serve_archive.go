// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/internal/duration"
	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const defaultArchive = "/var/lib/vramprof"

func archiveFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "archive", Value: defaultArchive, Usage: "keep captures of the past in `DIR`; \"\": none"},
		&cli.StringFlag{Name: "archive-size", Value: "1GiB", Usage: "keep at most `BYTES` of them, the oldest leave first"},
		&cli.StringFlag{Name: "archive-age", Value: "720h", Usage: "keep them for at most `TIME`"},
		&cli.IntFlag{Name: "oom-keep", Value: archive.DefaultRecords, Usage: "keep records of `N` out-of-memory errors in the archive; 0: none"},
	}
}

// archiveOptions reads the flags of the archive.
func archiveOptions(c *cli.Context) (o archive.Options, err error) {
	size, err := humanize.ParseBytes(c.String("archive-size"))
	if err != nil || size < archive.LeastSize || size > math.MaxInt64 {
		return o, fault.Usage(fmt.Errorf("--archive-size: %q is not a number of bytes from %s on", c.String("archive-size"), format.Bytes(archive.LeastSize)))
	}
	if o.Age, err = duration.Parse(c.String("archive-age")); err != nil {
		return o, fault.Usage(fmt.Errorf("--archive-age: %w", err))
	}
	o.Size, o.Tool = int64(size), "vramprof "+version
	return o, nil
}

// openArchive begins to write the archive, unless dir is "".
func (s *server) openArchive(dir string, o archive.Options) (err error) {
	if dir == "" {
		return nil
	}
	o.Host = s.host
	o.Note = func(text string) { s.log.Warn(text) }
	o.Opening = func(to ledger.Books) {
		if s.tracer != nil { // else the books are empty
			s.tracer.Opening(to)
		}
	}
	s.archive, err = archive.NewWriter(dir, o)
	if errors.Is(err, archive.ErrInUse) {
		err = fmt.Errorf("%w (use another --archive)", err)
	}
	if err != nil {
		return fault.New(fault.Failed, err)
	}
	s.config.Capture = s.archive
	return nil
}

// endArchive writes what is left.
func (s *server) endArchive() {
	if s.archive == nil {
		return
	}
	var last error
	if s.tracing.Load() {
		last = s.archive.End(s.snapshot())
	} else {
		last = s.archive.End(nil)
	}
	if last != nil {
		s.log.Error("end the archive", "error", last)
	}
}
