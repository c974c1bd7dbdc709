// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Limits of answers that take time or memory in proportion to the books.
const (
	maxComposing = 2  // at a time
	maxWriting   = 32 // composed answers that clients are still taking
	composeWait  = 5 * time.Second
	pastTime     = 30 * time.Second // to read a moment of the archive
)

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

// expensive runs compose when it is its turn, and passes its result to write, which may wait for
// the client. Errors of compose go to fail.
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

// errPast is the error of a moment that takes too long to read.
var errPast = &requestError{http.StatusServiceUnavailable, fmt.Sprintf("this moment of the archive takes longer than %v to read (use vramprof report DIR --at TIME on the machine)", pastTime)}

// readPast reads the archive when it is the client's turn: one at a time, for at most pastTime, and
// only as long as the client waits and memory is not scarce.
func (l *limits) readPast(r *http.Request, read func(context.Context) error) error {
	p := l.clients.peerOf(r)
	if err := l.reading.enter(r.Context(), p, composeWait); err != nil {
		return err
	}
	defer l.reading.leave(p)
	ctx, cancel := context.WithTimeoutCause(r.Context(), l.pastTime, errPast)
	defer cancel()
	ctx, end := l.scarcity.bound(ctx)
	defer end()
	err := read(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}
