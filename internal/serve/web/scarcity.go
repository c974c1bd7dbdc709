// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"sync"
	"time"
)

// scarcity refuses answers while memory is scarce, so that clients cost tracing no detail.
type scarcity struct {
	mu        sync.Mutex
	until     time.Time // answers are refused
	composing int
	composed  time.Time // when one was composed last
	stop      chan struct{}
}

// refuses returns an error while answers are refused.
func (x *scarcity) refuses() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Now().Before(x.until) {
		return errScarce
	}
	return nil
}

// composes notes that an answer is composed, until the function that it returns is called.
func (x *scarcity) composes() func() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.composing++
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.composing--
		x.composed = time.Now()
	}
}

// bound returns a context that also ends when answers are refused.
func (x *scarcity) bound(ctx context.Context) (context.Context, func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stop == nil {
		x.stop = make(chan struct{})
	}
	stop := x.stop
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		select {
		case <-stop:
			cancel(errScarce)
		case <-over:
		}
	}()
	return ctx, sync.OnceFunc(func() { close(over); cancel(nil) })
}

// begin refuses answers from now on, and reports whether any may still hold memory: one is
// composed, or was within refuseTime.
func (x *scarcity) begin() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	fresh := !now.Before(x.until) && now.Sub(x.composed) < refuseTime
	x.until = now.Add(refuseTime)
	if x.stop != nil {
		close(x.stop)
		x.stop = nil
	}
	return fresh || x.composing > 0
}
