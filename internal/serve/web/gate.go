// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
)

// gate lets so many requests pass at a time. Each peer has its share of the places, as a process
// has of a table of the ledger: at most a quarter, at least one, and the last quarter is for
// newcomers. Of those that wait, the peer that was served longest ago is next, so a peer with many
// requests waits for itself.
type gate struct {
	mu     sync.Mutex
	shares quota.Quota
	held   map[peer]int
	served map[peer]uint64 // number of the latest turn of a peer that holds a place or waits
	turn   uint64
	queue  []*waiter
}

type waiter struct {
	peer peer
	turn chan struct{} // closed when it has a place
}

func newGate(places int) *gate {
	return &gate{shares: quota.New(places), held: map[peer]int{}, served: map[peer]uint64{}}
}

// enter waits for a place, 0: not at all. The caller must leave, unless there is an error.
func (g *gate) enter(ctx context.Context, p peer, wait time.Duration) error {
	g.mu.Lock()
	if g.room(p) {
		g.take(p)
		g.mu.Unlock()
		return nil
	}
	if wait == 0 {
		g.mu.Unlock()
		return errBusy
	}
	x := &waiter{peer: p, turn: make(chan struct{})}
	g.queue = append(g.queue, x)
	g.mu.Unlock()
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case <-x.turn:
		return nil
	case <-timeout.C:
		return g.giveUp(x, errBusy)
	case <-ctx.Done():
		return g.giveUp(x, ctx.Err())
	}
}

// giveUp returns why, or nil if the waiter has got a place meanwhile.
func (g *gate) giveUp(x *waiter, why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.queue, x)
	if i < 0 {
		return nil
	}
	g.queue = slices.Delete(g.queue, i, i+1)
	g.forget(x.peer)
	return why
}

func (g *gate) leave(p peer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shares.Give()
	if g.held[p]--; g.held[p] == 0 {
		delete(g.held, p)
	}
	for g.next() {
	}
	g.forget(p)
}

// next gives a place to the waiter whose turn it is, and reports whether there was one.
func (g *gate) next() bool {
	first := -1
	for i, x := range g.queue {
		if g.room(x.peer) && (first < 0 || g.served[x.peer] < g.served[g.queue[first].peer]) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	x := g.queue[first]
	g.queue = slices.Delete(g.queue, first, first+1)
	g.take(x.peer)
	close(x.turn)
	return true
}

func (g *gate) room(p peer) bool { return g.shares.Room(g.held[p], g.held[p]) }

func (g *gate) take(p peer) {
	g.shares.Take()
	g.held[p]++
	g.turn++
	g.served[p] = g.turn
}

// forget drops what is known of a peer that neither holds a place nor waits.
func (g *gate) forget(p peer) {
	if g.held[p] == 0 && !slices.ContainsFunc(g.queue, func(x *waiter) bool { return x.peer == p }) {
		delete(g.served, p)
	}
}

// taken returns how many places are taken.
func (g *gate) taken() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shares.Used()
}
