// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"regexp"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/web"
)

// moments finds earlier moments in an archive for clients.
type moments struct {
	dir  string
	mine *regexp.Regexp // --mine
}

// momentsOfArchive returns the archive for clients, nil for none.
func momentsOfArchive(c *cli.Context) web.Archive {
	if c.String("archive") == "" {
		return nil
	}
	return moments{c.String("archive"), mineOf(c)}
}

// At implements web.Archive. The archive is being written meanwhile.
func (m moments) At(_ context.Context, t time.Time) (*ledger.Snapshot, callstack.Stacks, io.Closer, error) {
	a, err := archive.Open(m.dir)
	if err != nil {
		return nil, nil, nil, err
	}
	found, err := a.At(t)
	if err != nil {
		var missing *archive.NotThere
		if errors.As(err, &missing) {
			err = web.NoMoment(missing.Error())
		}
		return nil, nil, nil, err
	}
	r, err := capture.Open(found.Capture.Path)
	if err != nil {
		return nil, nil, nil, err
	}
	s, err := r.Snapshot(found.Time)
	if err != nil {
		r.Close()
		return nil, nil, nil, err
	}
	return s, frames.Mine(r, m.mine), r, nil
}

// Overview implements web.Overview.
func (m moments) Overview(process, pod string) (*report.Archive, error) {
	a, err := archive.Open(m.dir)
	if err != nil {
		return nil, err
	}
	return overviewOf(a, archive.Filter{Process: process, Pod: pod}), nil
}
