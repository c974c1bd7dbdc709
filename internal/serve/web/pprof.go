// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxWaiting is how many requests wait for the second profile of a difference.
const maxWaiting = 64

const textWidth = 120 // columns of ?debug=1

// routeProfiles serves profiles. The paths below /gpu are those that scrapers of Go programs use by
// default, so that they need only a prefix.
func (s *Server) routeProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/gpu", s.serveProfile(""))
	mux.HandleFunc("GET /gpu/debug/pprof/heap", s.serveProfile(""))
	mux.HandleFunc("GET /gpu/debug/pprof/allocs", s.serveProfile("alloc_space"))
}

// serveProfile returns the handler of a path, whose profiles show a sample type by default; "": the
// usual one.
func (s *Server) serveProfile(shown string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := s.parse(r, "pid", "pod", "plane", "device", "at", "seconds", "debug", "gc")
		if err != nil {
			writeProfileError(w, err)
			return
		}
		fail := func(err error) { writeProfileError(w, err) }
		switch {
		case q.debug:
			s.expensive(r, func() ([]byte, error) { return s.summaryOf(r, &q) }, func(body []byte) { writeBody(w, "text/plain; charset=utf-8", body) }, fail)
		case q.seconds > 0:
			before, err := s.before(w, r, &q, shown)
			if err != nil {
				fail(err)
				return
			}
			s.expensive(r, func() ([]byte, error) { return s.difference(r, &q, shown, before) }, func(body []byte) { writeProfile(w, body) }, fail)
		default:
			s.expensive(r, func() ([]byte, error) { return s.profileOf(r, &q, shown) }, func(body []byte) { writeProfile(w, body) }, fail)
		}
	}
}

func writeProfile(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Disposition", `attachment; filename="gpu.pb.gz"`)
	writeBody(w, "application/octet-stream", body)
}

// writeProfileError answers with an error that go tool pprof shows.
func writeProfileError(w http.ResponseWriter, err error) {
	w.Header().Set("X-Go-Pprof", "1")
	writeError(w, err)
}

// profileOf returns a profile of now, or of the moment that is asked for.
func (s *Server) profileOf(r *http.Request, q *query, shown string) ([]byte, error) {
	return s.ofBooks(r, q, func(snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error) {
		return composeProfile(snapshot, st, q, shown)
	})
}

func composeProfile(snapshot *ledger.Snapshot, st callstack.Stacks, q *query, shown string) ([]byte, error) {
	var out bytes.Buffer
	err := profile.New(snapshot, st).Select(q.plane, q.device).Shown(shown).Write(&out)
	return out.Bytes(), err
}

// before composes the first profile of a difference and waits until the second is due. Meanwhile
// there is only the compressed profile: names of stacks that end would be gone later.
func (s *Server) before(w http.ResponseWriter, r *http.Request, q *query, shown string) ([]byte, error) {
	p := s.peerOf(r)
	if err := s.waiting.enter(r.Context(), p, 0); err != nil {
		return nil, err
	}
	defer s.waiting.leave(p)
	length := time.Duration(q.seconds) * time.Second
	lasts(w, length)
	end := time.NewTimer(length)
	defer end.Stop()
	first := *q
	first.seconds = 0
	body, err := s.composeNow(r, func() ([]byte, error) { return s.profileOf(r, &first, shown) })
	var request *requestError
	if errors.As(err, &request) && request.code == http.StatusNotFound { // the process may begin meanwhile
		body, err = s.composeNow(r, func() ([]byte, error) { return s.nothing(shown) })
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-end.C:
		return body, nil
	case <-s.ending:
		return nil, errEnding
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// nothing returns a profile without samples.
func (s *Server) nothing(shown string) ([]byte, error) {
	empty := s.whole(time.Time{}).Snapshot.Only(func(*ledger.Process) bool { return false })
	return composeProfile(empty, s.config.Session, &query{}, shown)
}

// difference returns the profile of now minus an earlier one.
func (s *Server) difference(r *http.Request, q *query, shown string, before []byte) ([]byte, error) {
	a, err := profile.Read(bytes.NewReader(before))
	if err != nil {
		return nil, err
	}
	snapshot, err := q.of(s.whole(time.Now()).Snapshot)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	b := profile.New(snapshot, s.config.Session).Select(q.plane, q.device).Shown(shown)
	err = profile.WriteDifference(&out, a, b)
	return out.Bytes(), err
}

// summaryOf returns what vramprof report prints.
func (s *Server) summaryOf(r *http.Request, q *query) ([]byte, error) {
	if q.plane != "" || q.device != "" {
		return nil, badRequest("debug=1 shows all planes and devices")
	}
	write := func(snapshot *ledger.Snapshot, st callstack.Stacks) ([]byte, error) {
		var out bytes.Buffer
		err := text.WriteSummary(&out, snapshot, st, report.Options{Steps: stepsOf(q, &s.config)}, text.Screen{Width: textWidth})
		return out.Bytes(), err
	}
	return s.ofBooks(r, q, write)
}

// ofBooks composes an answer of the whole books of now, or of the moment that is asked for.
func (s *Server) ofBooks(r *http.Request, q *query, compose func(*ledger.Snapshot, callstack.Stacks) ([]byte, error)) ([]byte, error) {
	if !q.at.IsZero() {
		return s.ofArchive(r, q, compose)
	}
	m := s.whole(time.Time{})
	return s.answers.shared(r.Context(), m, q.key(r), func() ([]byte, error) {
		snapshot, err := q.of(m.Snapshot)
		if err != nil {
			return nil, err
		}
		return compose(snapshot, s.config.Session)
	})
}

// ofArchive composes an answer of an earlier moment.
func (s *Server) ofArchive(r *http.Request, q *query, compose func(*ledger.Snapshot, callstack.Stacks) ([]byte, error)) (body []byte, err error) {
	if s.config.Archive == nil {
		return nil, errNoArchive
	}
	err = s.readPast(r, func(ctx context.Context) error {
		snapshot, st, done, err := s.config.Archive.At(ctx, q.at)
		if err != nil {
			return err
		}
		defer done.Close()
		if snapshot, err = q.of(snapshot); err != nil {
			return err
		}
		body, err = compose(snapshot, st)
		return err
	})
	return body, err
}
