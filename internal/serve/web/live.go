// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Limits of the live page.
const (
	pageGPUs    = 8                // on which nothing grows
	pageSites   = 1000             // listed one by one; the others are summed
	chartLength = 15 * time.Minute // of the chart

	samplePause = 4 * time.Second // between moments of the chart while no page is open

	updateShare = 30               // updates take at most one part in so many of one processor
	pastAge     = 10 * time.Second // of what is known of the archive
)

// page is what all clients of the live page share. Nothing is composed while nobody asks.
type page struct {
	config   *Config
	moments  *moments
	limits   *limits
	ooms     *oomList
	verdicts *watch.Watcher
	run      string // names this run of vramprof, whose updates fit no other

	mu      sync.Mutex // held while an update is composed
	latest  *update
	due     time.Time // of the next one
	number  uint64
	window  *timeline.Window
	archive archived
	session []html.Error // as of latest
	ended   endings

	watchers watchers
	linger   time.Duration // how long the chart goes on without any page
}

// archived is what is known of the archive.
type archived struct {
	from, to time.Time
	errors   []html.Error
	more     uint64
	read     time.Time
}

func newPage(config *Config, books *moments, bounds *limits, ooms *oomList, verdicts *watch.Watcher) *page {
	p := &page{config: config, moments: books, limits: bounds, ooms: ooms, verdicts: verdicts, run: rand.Text()[:10], window: timeline.NewWindow(uint64(chartLength))}
	p.linger = chartLength
	p.watchers.set, p.watchers.wake = map[*watcher]struct{}{}, make(chan struct{}, 1)
	return p
}

// current returns the latest update. It composes a new one if that is due, so that updates keep
// within their share however many clients ask.
func (p *page) current() (*update, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	if p.latest != nil && began.Before(p.due) {
		return p.latest, nil
	}
	if err := p.limits.scarcity.refuses(); err != nil {
		if p.latest != nil {
			return p.latest, nil // it shows its age
		}
		return nil, err
	}
	defer p.limits.scarcity.composes()()
	m := p.moments.forPage()
	cost := time.Since(began)
	verdicts := p.verdicts.For(m.Snapshot) // they have a share of their own
	began = time.Now()
	errors := p.errors(m.Snapshot)
	p.session = errors
	p.window.Add(m.Snapshot)
	sections, err := html.Sections(html.Input{
		Snapshot: m.Snapshot, Stacks: p.config.Session, Timeline: p.window.Timeline(eventsOf(errors)), Verdicts: verdicts.Sites(m.Snapshot), Balance: verdicts.Balance(), Advice: verdicts.Advice(), Judged: verdicts.Time(),
		MaxSites: pageSites, Steps: p.config.steps(), Live: p.live(errors, false), Past: p.ended.of(m.Snapshot, p.config.Session, p.moments),
	})
	if err != nil {
		return nil, err
	}
	p.number++
	u := &update{id: fmt.Sprintf("%s-%d", p.run, p.number), taken: m.Taken, sections: sections}
	if p.latest != nil {
		u.after, u.changed = p.latest.id, html.Changed(p.latest.sections, sections)
	}
	if len(u.after) > 0 && p.watchers.any() {
		u.message(u.after, true)
	}
	cost += time.Since(began)
	u.pause = min(max(momentAge, updateShare*cost), longestUpdate)
	p.latest, p.due = u, time.Now().Add(u.pause-cost)
	return u, nil
}

// sample takes a moment for the chart, and returns the time until the next one.
func (p *page) sample() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	began := time.Now()
	s := p.moments.forPage().Snapshot
	p.window.Add(s)
	return min(max(samplePause, updateShare*time.Since(began)), longestUpdate)
}

// at returns the data of a moment of the archive.
func (p *page) at(r *http.Request, t time.Time) (list []html.Section, err error) {
	if p.config.Archive == nil {
		return nil, errNoArchive
	}
	err = p.limits.readPast(r, func(ctx context.Context) error {
		list, err = p.read(ctx, t)
		return err
	})
	return list, err
}

func (p *page) read(ctx context.Context, t time.Time) ([]html.Section, error) {
	if a, ok := p.config.Archive.(Past); ok {
		s, st, tl, done, err := a.Chart(ctx, t, chartLength)
		if err != nil {
			return nil, err
		}
		defer done.Close()
		return p.past(s, st, tl)
	}
	s, st, done, err := p.config.Archive.At(ctx, t)
	if err != nil {
		return nil, err
	}
	defer done.Close()
	return p.past(s, st, nil)
}

func (p *page) past(s *ledger.Snapshot, st callstack.Stacks, tl *timeline.Timeline) ([]html.Section, error) {
	found := report.Judge(s, st)
	p.mu.Lock()
	live := p.live(p.session, true)
	p.mu.Unlock()
	sections, err := html.Sections(html.Input{Snapshot: s, Stacks: st, Timeline: tl, Verdicts: found.Sites(), Balance: found.BalanceTexts(pageGPUs), Advice: found.Advice, Live: live,
		Past: purpose.AtPeaks(s, st, nil, html.MaxPast)})
	return append(sections, section("id", ""), section("age", 0)), err
}

// live returns what the page needs of its server. p.mu is held.
func (p *page) live(session []html.Error, past bool) *html.Live {
	if a, ok := p.config.Archive.(Past); ok && time.Since(p.archive.read) > pastAge {
		p.archive = archived{}
		if from, to, ok := a.Span(); ok {
			p.archive.from, p.archive.to = from, to
			p.archive.errors, p.archive.more = a.Errors()
		}
		p.archive.read = time.Now()
	}
	l := &html.Live{Past: past, From: p.archive.from, To: p.archive.to, More: p.archive.more, Errors: slices.Clone(session)}
	for _, e := range p.archive.errors {
		if !slices.ContainsFunc(session, func(x html.Error) bool {
			return x.PID == e.PID && x.Size == e.Size && e.Wall.Sub(x.Wall).Abs() < time.Second
		}) {
			l.Errors = append(l.Errors, e)
		}
	}
	slices.SortStableFunc(l.Errors, func(x, y html.Error) int { return y.Wall.Compare(x.Wall) })
	return l
}

// errors returns the session's latest out-of-memory errors.
func (p *page) errors(s *ledger.Snapshot) (list []html.Error) {
	kept, _ := p.ooms.since(0, true)
	for _, e := range kept {
		list = append(list, html.Error{OOM: e, Wall: s.Wall.Add(-time.Duration(int64(s.End - e.Time))), Frames: p.config.Session})
	}
	return list
}

func eventsOf(list []html.Error) (events []ledger.Event) {
	for i := range list {
		x := &list[i]
		events = append(events, ledger.Event{Op: ledger.OutOfMemory, Time: x.Time, PID: x.PID, Kind: x.Kind, Device: x.Device, Size: x.Size, Stack: x.Stack, API: x.API})
	}
	slices.SortStableFunc(events, func(a, b ledger.Event) int { return cmp.Compare(a.Time, b.Time) })
	return events
}

// join adds a page, which is told of the next update at once; nil: there are too many.
func (p *page) join(of peer) *watcher {
	l := &p.watchers
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.set) >= maxWatchers && !l.makeRoom(of) {
		return nil
	}
	x := &watcher{peer: of, number: l.next, news: make(chan struct{}, 1), gone: make(chan struct{})}
	l.next++
	l.set[x] = struct{}{}
	x.news <- struct{}{}
	if !l.runs {
		l.runs = true
		go p.follow()
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return x
}

func (p *page) leave(x *watcher) {
	p.watchers.mu.Lock()
	delete(p.watchers.set, x)
	p.watchers.mu.Unlock()
}

// follow composes updates as long as anybody watches. For some time afterwards it only takes
// moments for the chart, so that a page that is opened again has them.
func (p *page) follow() {
	for goOn := true; goOn; goOn = p.goesOn() {
		pause := longestUpdate
		if !p.watchers.any() {
			pause = p.sample()
		} else if u, err := p.current(); err == nil {
			pause = u.pause
		}
		p.watchers.tell()
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.watchers.wake:
			timer.Stop()
		}
	}
}

// goesOn reports whether there are pages, or were not long ago.
func (p *page) goesOn() bool {
	l := &p.watchers
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.set) > 0 {
		l.last = time.Now()
	}
	l.runs = time.Since(l.last) < p.linger
	return l.runs
}
