// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// routeAPI serves the JSON of commands: report, leaks, ps, and report of an archive.
func (s *Server) routeAPI(mux *http.ServeMux) {
	mux.HandleFunc("GET /api/v1/report", s.serveJSON(s.reportOf, "view", "top", "pid", "pod", "at"))
	mux.HandleFunc("GET /api/v1/leaks", s.serveJSON(s.leaksOf, "older", "top", "pid", "pod", "at"))
	mux.HandleFunc("GET /api/v1/processes", s.serveJSON(s.processesOf, "pid", "pod", "at"))
	mux.HandleFunc("GET /api/v1/archive", s.serveOverview)
}

type composer func(q *query, snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error)

func (s *Server) serveJSON(compose composer, known ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fail := func(err error) { writeError(w, err) }
		q, err := s.parse(r, known...)
		if err != nil {
			fail(err)
			return
		}
		s.expensive(r, func() ([]byte, error) {
			return s.ofBooks(r, &q, func(snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error) { return compose(&q, snapshot, st) })
		}, func(body []byte) { writeBody(w, "application/json", body) }, fail)
	}
}

func (s *Server) reportOf(q *query, snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error) {
	view := json.View{Name: q.view, Snapshot: snapshot, Stacks: st}
	if view.Name == "" {
		view.Name = apiViews[0]
	}
	var out bytes.Buffer
	err := json.WriteView(&out, view, report.Options{Top: q.top})
	return out.Bytes(), err
}

func (s *Server) leaksOf(q *query, snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error) {
	var out bytes.Buffer
	err := json.WriteLeaks(&out, snapshot, st, report.Options{Top: q.top, Older: q.older, Steps: stepsOf(q, &s.config)})
	return out.Bytes(), err
}

func (s *Server) processesOf(_ *query, snapshot *ledger.Snapshot, _ callstack.Stacks) ([]byte, error) {
	var out bytes.Buffer
	err := json.WriteProcesses(&out, json.ProcessesOf(snapshot))
	return out.Bytes(), err
}

func (s *Server) serveOverview(w http.ResponseWriter, r *http.Request) {
	fail := func(err error) { writeError(w, err) }
	q, err := parseQuery(r.URL.RawQuery, "process", "pod")
	past, ok := s.config.Archive.(Overview)
	if err == nil {
		err = s.seesAll(r)
	}
	if err == nil && !ok {
		err = errNoArchive
	}
	if err != nil {
		fail(err)
		return
	}
	s.expensive(r, func() ([]byte, error) {
		p := s.peerOf(r)
		if err := s.reading.enter(r.Context(), p, composeWait); err != nil {
			return nil, err
		}
		defer s.reading.leave(p)
		a, err := past.Overview(q.process, strings.TrimPrefix(q.namespace+"/"+q.pod, "/"))
		if err != nil {
			return nil, err
		}
		var out bytes.Buffer
		err = json.WriteArchive(&out, a)
		return out.Bytes(), err
	}, func(body []byte) { writeBody(w, "application/json", body) }, fail)
}
