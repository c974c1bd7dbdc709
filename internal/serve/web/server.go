// SPDX-License-Identifier: Apache-2.0

// Package web serves a running session over HTTP: metrics, profiles, a live page and JSON.
//
// Tracing never waits for a client: all clients share one copy of the books, which is taken at most
// once per second, and what is written to them is composed from that copy.
package web

import (
	"net/http"
	"sync"
	"time"

	"github.com/vramprof/vramprof/report/metrics"
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
	// Names besides the machine's that clients may ask for, with or without a port: those of a reverse
	// proxy or a DNS server.
	Hosts []string
	// Users of this machine besides root and the one of this process who see the processes of all
	// users.
	Users []uint32
	// Passwords reports whether requests come only with a right password; nil: they do not.
	Passwords func() bool

	MetricsPID bool           // metrics by process, not only by workload
	Verdicts   *watch.Watcher // of the session; nil: one that only the server asks
}

// Server answers the requests of all listeners.
type Server struct {
	config  Config
	names   []string // of this machine
	answers answers
	ooms    oomList

	page     *page
	verdicts *watch.Watcher

	running, waiting, scraping, monitoring *gate

	metrics func() http.Handler // for all listeners

	end    sync.Once
	ending chan struct{} // closed when a listener's server shuts down

	*clients
	*moments
	*limits
}

// moments are the latest copies of the books.
type moments struct {
	session Session

	mu     sync.Mutex // held while a moment is taken
	moment *Moment
	high   *ledger.Snapshot // the highest of the moments since the page took one; nil: none
	paged  time.Time        // when the page took one

	wholeMu sync.Mutex // the same for whole moments
	entire  *Moment
	cost    time.Duration // of taking it
	earlier time.Duration // of the one before: the lower counts, as a copy may wait for a processor
}

// Moment is a copy of the books that all clients share. They must not change it.
type Moment struct {
	Snapshot *ledger.Snapshot
	Taken    time.Time
}

// momentAge is how old a moment may be.
const momentAge = time.Second

// Whole moments take at most one part in wholeShare of the time, and are at most wholeAge old.
const (
	wholeShare = 20
	wholeAge   = 10 * time.Second
)

// New returns a Server.
func New(config Config) *Server {
	s := &Server{
		config: config, names: ownNames(config.Hosts), ending: make(chan struct{}), clients: newClients(), moments: &moments{session: config.Session},
		running: newGate(maxRequests), waiting: newGate(maxWaiting), scraping: newGate(maxScrapes), monitoring: newGate(maxScraping),
	}
	s.limits = newLimits(s.clients)
	if s.verdicts = config.Verdicts; s.verdicts == nil {
		s.verdicts = watch.New(config.Session, nil)
	}
	s.metrics = sync.OnceValue(s.newMetrics)
	s.page = newPage(s)
	return s
}

// Handler returns the handler of the TCP listeners.
func (s *Server) Handler() http.Handler { return s.guard(s.routes()) }

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.routeHealth(mux)
	s.routeProfiles(mux)
	s.routeAPI(mux)
	s.routeMetrics(mux)
	s.routePage(mux)
	return mux
}

// now returns the books as of at most momentAge ago.
func (m *moments) now() *Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew()
	return m.moment
}

// renew takes a moment if the latest is too old. m.mu is held.
func (m *moments) renew() {
	if m.moment != nil && time.Since(m.moment.Taken) <= momentAge {
		return
	}
	m.moment = &Moment{Snapshot: m.session.Glance(), Taken: time.Now()}
	high := m.moment.Snapshot.AtHighest()
	switch {
	case time.Since(m.paged) > 2*longestUpdate: // there is no page
		high = nil
	case m.high != nil:
		high = high.Above(m.high)
	}
	m.high = high
}

// forPage returns what now does, with Snapshot.Highest since forPage was called last, whoever asked
// for moments in between.
func (m *moments) forPage() *Moment {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renew()
	latest := *m.moment
	if m.high != nil {
		x := *latest.Snapshot
		x.Highest, latest.Snapshot = m.high, &x
	}
	m.high, m.paged = nil, time.Now()
	return &latest
}

// whole returns the books with stuck cache and peaks, taken after since and as lately as their cost
// allows.
func (m *moments) whole(since time.Time) *Moment {
	m.wholeMu.Lock()
	defer m.wholeMu.Unlock()
	age := min(max(momentAge, wholeShare*min(m.cost, m.earlier)), wholeAge)
	if began := time.Now(); m.entire == nil || began.Sub(m.entire.Taken) > age || m.entire.Taken.Before(since) {
		m.entire = &Moment{Snapshot: m.session.Snapshot(), Taken: began}
		m.earlier, m.cost = m.cost, time.Since(began)
	}
	return m.entire
}

// drop forgets whole moments, and reports whether there was one.
func (m *moments) drop() (held bool) {
	if m.wholeMu.TryLock() { // else it is just being taken
		held = m.entire != nil
		m.entire = nil
		m.wholeMu.Unlock()
	}
	return held
}
