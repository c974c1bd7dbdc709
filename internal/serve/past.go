// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/archive"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// pastEvery is how often the archive is looked through for the page.
const pastEvery = time.Minute

// Chart implements web.Past. The timeline is of the capture that has the moment.
func (m moments) Chart(ctx context.Context, t time.Time, length time.Duration) (*ledger.Snapshot, callstack.Stacks, *timeline.Timeline, io.Closer, error) {
	r, at, err := m.open(t)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	defer stopWith(ctx, r)()
	from := max(at-min(at, uint64(length)), r.Opened())
	s, tl, _, err := replay.Timeline(r, from, max(at, from))
	if err != nil {
		r.Close()
		return nil, nil, nil, nil, err
	}
	return s, m.stacks(r), tl, r, nil
}

// Span implements web.Past.
func (m moments) Span() (from, to time.Time, ok bool) {
	m.look()
	m.past.mu.Lock()
	defer m.past.mu.Unlock()
	return m.past.from, m.past.to, !m.past.from.IsZero()
}

// Errors implements web.Past.
func (m moments) Errors() (list []html.Error, more uint64) {
	m.look()
	m.past.mu.Lock()
	defer m.past.mu.Unlock()
	return m.past.errors, m.past.more
}

func (m moments) look() {
	p := m.past
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.looked) < pastEvery {
		return
	}
	p.looked = time.Now()
	a, err := archive.Open(m.dir)
	if err != nil {
		return // a moment that is asked for has the error
	}
	p.from, p.to, _ = a.Span()
	p.errors, p.more = nil, 0
	for _, c := range slices.Backward(a.Captures()) {
		if !c.Complete {
			continue // the session knows its own, and reading all of a capture takes long
		}
		x, err := c.Index()
		if err != nil {
			continue
		}
		p.more += x.MoreOOMs
		for _, o := range slices.Backward(x.OOMs) {
			p.errors = append(p.errors, html.Error{
				OOM:  report.OOM{PID: o.PID, Comm: o.Comm, API: o.API, Size: o.Size, Device: ledger.UnknownDevice, Kind: ledger.Device},
				Wall: c.From.Add(time.Duration(int64(o.Time - c.Begin))),
			})
		}
	}
}
