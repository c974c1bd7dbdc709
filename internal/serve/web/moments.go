// SPDX-License-Identifier: Apache-2.0

package web

import (
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// Moment is a copy of the books that all clients share. They must not change it.
type Moment struct {
	Snapshot *ledger.Snapshot
	Taken    time.Time
}

// momentAge is how old a moment may be.
const momentAge = time.Second

// longestUpdate is the longest time between two updates of the page.
const longestUpdate = 30 * time.Second

// Whole moments take at most one part in wholeShare of the time, and are at most wholeAge old.
const (
	wholeShare = 20
	wholeAge   = 10 * time.Second
)

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
