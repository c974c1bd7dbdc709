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
	maxAnswers   = 64 << 20         // bytes of answers kept for other clients
	pastTime     = 30 * time.Second // to read a moment of the archive
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

// drop forgets all answers, and reports whether there were any.
func (a *answers) drop() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	any := a.bytes > 0
	a.of, a.list, a.bytes = nil, nil, 0
	return any
}

// limits bounds what answers cost, together and of each client.
type limits struct {
	clients *clients

	composing, writing, reading *gate

	pastTime time.Duration // pastTime, but for tests
	budgets  *budgets
	bodies   bodies
	scarcity scarcity
}

func newLimits(of *clients) *limits {
	return &limits{
		clients: of, composing: newGate(maxComposing), writing: newGate(maxWriting), reading: newGate(1),
		pastTime: pastTime, budgets: newBudgets(time.Now), bodies: bodies{held: map[peer]int{}},
	}
}

// expensive runs compose when it is its turn, and passes its result to write, which may wait for the
// client. Errors of compose go to fail.
func (l *limits) expensive(r *http.Request, compose func() ([]byte, error), write func([]byte), fail func(error)) {
	p := l.clients.peerOf(r)
	if err := l.writing.enter(r.Context(), p, composeWait); err != nil {
		fail(err)
		return
	}
	defer l.writing.leave(p)
	body, err := l.composeNow(r, compose)
	if err == nil {
		err = l.bodies.take(p, len(body))
	}
	if err != nil {
		fail(err)
		return
	}
	defer l.bodies.give(p, len(body))
	write(body)
}

// composeNow runs compose when it is its turn, and counts what it costs.
func (l *limits) composeNow(r *http.Request, compose func() ([]byte, error)) (body []byte, err error) {
	p := l.clients.peerOf(r)
	if err := l.scarcity.refuses(); err != nil {
		return nil, err
	}
	if err := l.budgets.ask(p); err != nil {
		return nil, err
	}
	if err := l.composing.enter(r.Context(), p, composeWait); err != nil {
		return nil, err
	}
	defer l.composing.leave(p)
	defer l.scarcity.composes()()
	l.budgets.spend(p, costing(func() { body, err = compose() }))
	return body, err
}

// writeError answers with an error. Its text may quote the request or names of traced processes.
func writeError(w http.ResponseWriter, err error) {
	var request *requestError
	var costly *tooMuch
	switch {
	case errors.As(err, &costly):
		retryAfter(w, costly.seconds())
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.As(err, &request):
		http.Error(w, untrusted.Clean(request.text), request.code)
	case errors.Is(err, errScarce):
		retryAfter(w, int(refuseTime.Seconds()))
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, errBusy):
		retryAfter(w, 1)
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
