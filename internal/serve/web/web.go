// SPDX-License-Identifier: Apache-2.0

// Package web serves a running session over HTTP: metrics, profiles, a live page and JSON.
//
// Tracing never waits for a client: all clients share one copy of the books, which is taken at most
// once per second, and what is written to them is composed from that copy.
package web

import (
	"log/slog"
	"net/http"
	"sync"

	"github.com/vramprof/vramprof/report/watch"
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
	s.page = newPage(&s.config, s.moments, s.limits, &s.ooms, s.verdicts)
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

// HTTP returns the server for one listener of the handler. The servers of all listeners share
// maxConnections.
func (s *Server) HTTP(handler http.Handler, log *slog.Logger) *http.Server {
	x := &http.Server{
		Handler: handler, ConnContext: s.withPeer, ConnState: s.connections.changed, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients cause these errors
	}
	x.RegisterOnShutdown(func() { s.end.Do(func() { close(s.ending) }) })
	return x
}
