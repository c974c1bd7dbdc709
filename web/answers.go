// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// Limits of answers that take time or memory in proportion to the books.
const (
	maxComposing = 2  // at a time
	maxWriting   = 32 // composed answers that clients are still taking
	composeWait  = 5 * time.Second
	maxAnswers   = 64 << 20 // bytes of answers kept for other clients
)

// errBusy means that too many expensive requests are answered.
var errBusy = errors.New("vramprof composes too many answers now (try again in a second)")

// errEnding means that the server shuts down.
var errEnding = &requestError{http.StatusServiceUnavailable, "vramprof is ending"}

// requestError is an error that a client caused.
type requestError struct {
	code int
	text string
}

func (e *requestError) Error() string { return e.text }

func badRequest(text string) error { return &requestError{http.StatusBadRequest, text} }
func notFound(text string) error   { return &requestError{http.StatusNotFound, text} }

// gate lets so many pass at a time.
type gate chan struct{}

// enter waits for a place. The caller must leave.
func (g gate) enter(ctx context.Context, wait time.Duration) error {
	select {
	case g <- struct{}{}:
		return nil
	default:
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case g <- struct{}{}:
		return nil
	case <-timeout.C:
		return errBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() { <-g }

// answers keeps what was composed of one moment, for clients that ask the same.
type answers struct {
	mu    sync.Mutex
	of    *Moment
	list  map[string]*answer
	bytes int
}

type answer struct {
	done chan struct{}
	body []byte
	err  error
}

// shared returns what compose returns for the moment, from an earlier client if one asked the same.
// The key names all that compose depends on besides the moment.
func (a *answers) shared(ctx context.Context, m *Moment, key string, compose func() ([]byte, error)) ([]byte, error) {
	a.mu.Lock()
	if a.of != m {
		a.of, a.list, a.bytes = m, map[string]*answer{}, 0
	}
	x, ok := a.list[key]
	if !ok {
		x = &answer{done: make(chan struct{}), err: errors.New("internal error")}
		a.list[key] = x
	}
	a.mu.Unlock()
	if ok {
		select {
		case <-x.done:
			return x.body, x.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer a.composed(m, key, x)
	x.body, x.err = compose()
	return x.body, x.err
}

// composed keeps an answer if there is room for it. It also runs when compose has panicked.
func (a *answers) composed(m *Moment, key string, x *answer) {
	close(x.done)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of != m {
		return
	}
	if a.bytes += len(x.body); x.err != nil || a.bytes > maxAnswers {
		a.bytes -= len(x.body)
		delete(a.list, key)
	}
}

// expensive runs compose when it is its turn, and passes its result to write, which may wait for the
// client. Errors of compose go to fail.
func (s *Server) expensive(r *http.Request, compose func() ([]byte, error), write func([]byte), fail func(error)) {
	if err := s.writing.enter(r.Context(), composeWait); err != nil {
		fail(err)
		return
	}
	defer s.writing.leave()
	body, err := s.composeNow(r, compose)
	if err != nil {
		fail(err)
		return
	}
	write(body)
}

func (s *Server) composeNow(r *http.Request, compose func() ([]byte, error)) ([]byte, error) {
	if err := s.composing.enter(r.Context(), composeWait); err != nil {
		return nil, err
	}
	defer s.composing.leave()
	return compose()
}

// writeError answers with an error. Its text may quote the request or names of traced processes.
func writeError(w http.ResponseWriter, err error) {
	var request *requestError
	switch {
	case errors.As(err, &request):
		http.Error(w, untrusted.Clean(request.text), request.code)
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, context.Canceled): // nobody reads it
	default:
		http.Error(w, untrusted.Clean(err.Error()), http.StatusInternalServerError)
	}
}

// writeBody answers with a body of a known length.
func writeBody(w http.ResponseWriter, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
