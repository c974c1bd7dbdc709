// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"io"
	"regexp"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/serve/web"
	"github.com/vramprof/vramprof/internal/source"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// moments finds earlier moments in an archive for clients.
type moments struct {
	dir  string
	mine *regexp.Regexp // --mine
	past *pastOf
}

// pastOf is what the page shows of an archive, as of the last look.
type pastOf struct {
	mu       sync.Mutex
	looked   time.Time
	from, to time.Time
	errors   []html.Error
	more     uint64
}

// momentsOfArchive returns the archive for clients, nil for none.
func momentsOfArchive(dir string, mine *regexp.Regexp) web.Archive {
	if dir == "" {
		return nil
	}
	return moments{dir, mine, &pastOf{}}
}

// At implements web.Archive. The archive is being written meanwhile.
func (m moments) At(ctx context.Context, t time.Time) (*ledger.Snapshot, callstack.Stacks, io.Closer, error) {
	r, at, err := m.open(t)
	if err != nil {
		return nil, nil, nil, err
	}
	defer stopWith(ctx, r)()
	s, err := r.Snapshot(at)
	if err != nil {
		r.Close()
		return nil, nil, nil, err
	}
	return s, m.stacks(r), r, nil
}

// stopWith ends playing a capture when ctx ends, until the function that it returns is called.
func stopWith(ctx context.Context, r *capture.Reader) func() bool {
	return context.AfterFunc(ctx, func() { r.Stop(context.Cause(ctx)) })
}

// open opens the capture that has a moment, and returns where it is in it.
func (m moments) open(t time.Time) (*capture.Reader, uint64, error) {
	a, err := archive.Open(m.dir)
	if err != nil {
		return nil, 0, err
	}
	found, err := a.At(t)
	if err != nil {
		var missing *archive.NotThere
		if errors.As(err, &missing) {
			err = web.NoMoment(missing.Error())
		}
		return nil, 0, err
	}
	r, err := capture.Open(found.Capture.Path)
	return r, found.Time, err
}

// Overview implements web.Overview.
func (m moments) Overview(process, pod string) (*report.Archive, error) {
	a, err := archive.Open(m.dir)
	if err != nil {
		return nil, err
	}
	return source.Overview(a, archive.Filter{Process: process, Pod: pod}), nil
}

func (m moments) stacks(r *capture.Reader) callstack.Stacks { return frames.Mine(r, m.mine) }
