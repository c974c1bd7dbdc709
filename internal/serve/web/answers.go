// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"sync"
)

// maxAnswers is how many bytes of answers are kept for other clients.
const maxAnswers = 64 << 20

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
