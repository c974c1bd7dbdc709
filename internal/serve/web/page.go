// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// routePage serves the page of report --html, which then follows the session.
func (s *Server) routePage(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", s.servePage)
	mux.HandleFunc("GET /data", s.serveData)
	mux.HandleFunc("GET /events", s.serveEvents)
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request) {
	policy := ""
	if user, err := s.seenBy(r); err == nil && user != everybody {
		s.serveOwn(w, r)
		return
	}
	s.serveSections(w, r, func(list []html.Section) (body []byte, err error) {
		body, policy, err = html.Page(list)
		return body, err
	}, func(body []byte) {
		w.Header().Set("Content-Security-Policy", policy)
		writeBody(w, "text/html; charset=utf-8", body)
	})
}

// serveOwn serves a page of the processes of one user, which does not follow the session.
func (s *Server) serveOwn(w http.ResponseWriter, r *http.Request) {
	fail := func(err error) { writeError(w, err) }
	q, err := s.parse(r, "at")
	if err != nil {
		fail(err)
		return
	}
	policy, err := html.StillPolicy()
	if err != nil {
		fail(err)
		return
	}
	s.expensive(r, func() ([]byte, error) {
		return s.ofBooks(r, &q, func(snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error) {
			found := report.Judge(snapshot, st)
			return html.Still(html.Input{Snapshot: snapshot, Stacks: st, Verdicts: found.Sites(), Balance: found.BalanceTexts(pageGPUs), Advice: found.Advice, MaxSites: pageSites, Steps: stepsOf(&q, &s.config),
				Past: purpose.AtPeaks(snapshot, st, nil, html.MaxPast)})
		})
	}, func(body []byte) {
		w.Header().Set("Content-Security-Policy", policy)
		writeBody(w, "text/html; charset=utf-8", body)
	}, fail)
}

// serveData serves the data of the page alone.
func (s *Server) serveData(w http.ResponseWriter, r *http.Request) {
	s.serveSections(w, r, func(list []html.Section) ([]byte, error) {
		body := html.Join(list)
		if acceptsGzip(r) {
			return packed(gzipHeader, body, true)
		}
		return body, nil
	}, func(body []byte) {
		w.Header().Set("Vary", "Accept-Encoding")
		if acceptsGzip(r) {
			w.Header().Set("Content-Encoding", "gzip")
		}
		writeBody(w, "application/json", body)
	})
}

// serveSections composes an answer of the data of now, or of the moment that is asked for.
func (s *Server) serveSections(w http.ResponseWriter, r *http.Request, compose func([]html.Section) ([]byte, error), write func([]byte)) {
	fail := func(err error) { writeError(w, err) }
	q, err := s.parse(r, "at")
	if err == nil {
		err = s.seesAll(r)
	}
	if err != nil {
		fail(err)
		return
	}
	s.expensive(r, func() ([]byte, error) {
		if !q.at.IsZero() {
			list, err := s.page.at(r, q.at)
			if err != nil {
				return nil, err
			}
			return compose(list)
		}
		u, err := s.page.current()
		if err != nil {
			return nil, err
		}
		return compose(u.withAge())
	}, write, fail)
}
