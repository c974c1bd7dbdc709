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

	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Session is the session that a Server serves. Its methods may be called from any goroutine.
type Session interface {
	callstack.Stacks

	// Glance returns a copy of the books without Snapshot.Stuck and Snapshot.Peaks.
	Glance() *ledger.Snapshot
	// Snapshot returns a copy of the books, and takes time in proportion to the live tensors.
	Snapshot() *ledger.Snapshot
	// Own returns what vramprof itself uses and lost.
	Own() Own
}

// Own is what vramprof itself uses and lost.
type Own struct {
	Version  string
	Began    time.Time     // when tracing began
	Memory   uint64        // resident bytes, with files and rings
	Ceiling  uint64        // bytes of --max-memory
	Kernel   uint64        // bytes of the kernel half's maps; 0: unknown
	CPU      time.Duration // of all threads
	Dropped  int           // how often detail was dropped for want of memory
	OOMs     uint64        // out-of-memory errors of traced processes
	Unstored uint64        // those of them without a record
}

// Config is what a Server serves.
type Config struct {
	Session Session
	Ready   func() bool // reports whether tracing has begun and has not ended
}

// Server answers the requests of all listeners.
type Server struct {
	config Config

	mu     sync.Mutex // held while a moment is taken
	moment *Moment
}

// Moment is a copy of the books that all clients share. They must not change it.
type Moment struct {
	Snapshot *ledger.Snapshot
	Taken    time.Time
}

// momentAge is how old a moment may be.
const momentAge = time.Second

// New returns a Server.
func New(config Config) *Server { return &Server{config: config} }

// Handler returns the handler of the TCP listeners.
func (s *Server) Handler() http.Handler { return s.routes() }

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	s.routeHealth(mux)
	return mux
}

// now returns the books as of at most momentAge ago.
func (s *Server) now() *Moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.moment == nil || time.Since(s.moment.Taken) > momentAge {
		s.moment = &Moment{Snapshot: s.config.Session.Glance(), Taken: time.Now()}
	}
	return s.moment
}
