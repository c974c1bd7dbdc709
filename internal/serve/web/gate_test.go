// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestOneClientLeavesPlacesForOthers(t *testing.T) {
	for _, places := range []int{2, maxWriting, maxWaiting, maxRequests, maxScrapes, maxScraping} {
		g, busy := newGate(places), localPeer(1000)
		held := 0
		for ; g.enter(t.Context(), busy, 0) == nil; held++ {
		}
		if held == 0 || held > max(places/4, 1) {
			t.Errorf("one client has %d of %d places", held, places)
		}
		g.hold(t, localPeer(1001))
		for range held {
			g.leave(busy)
		}
		g.leave(localPeer(1001))
		if g.taken() != 0 || len(g.held)+len(g.served)+len(g.queue) != 0 {
			t.Errorf("%d places: an empty gate keeps %v, %v, %v", places, g.held, g.served, g.queue)
		}
	}
}

// TestManyClientsTogetherLeavePlacesForANewcomer: each has its share.
func TestManyClientsTogetherLeavePlacesForANewcomer(t *testing.T) {
	g := newGate(maxRequests)
	for i := range 5 {
		for range maxRequests {
			if g.enter(t.Context(), testPeer(i), 0) != nil {
				break
			}
		}
	}
	for i := range 5 {
		g.hold(t, testPeer(100+i))
	}
}

// TestAPeerWithManyRequestsWaitsForItself: of two clients that ask for much, none lets a third one
// wait for more than the answer that is being composed.
func TestAPeerWithManyRequestsWaitsForItself(t *testing.T) {
	g, honest := newGate(1), localPeer(0)
	g.hold(t, localPeer(1000))
	order := make(chan peer)
	waits := func(p peer) {
		before := g.waiting()
		go func() {
			if g.enter(context.Background(), p, time.Minute) == nil {
				order <- p
				g.leave(p)
			}
		}()
		for g.waiting() == before {
			time.Sleep(time.Millisecond)
		}
	}
	for range 20 {
		waits(localPeer(1000))
		waits(localPeer(1001))
	}
	waits(honest)
	g.leave(localPeer(1000))
	for i := range 41 {
		if p := <-order; p == honest && i > 1 {
			t.Errorf("%d others were served before", i)
		}
	}
}

func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}

func TestAClientThatGivesUpLeavesTheQueue(t *testing.T) {
	g, p := newGate(1), localPeer(0)
	g.hold(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.enter(ctx, p, time.Minute); !errors.Is(err, context.Canceled) || g.waiting() != 0 {
		t.Errorf("%v, %d wait", err, g.waiting())
	}
}

// TestAClientThatHasUsedUpItsTimeWaits, others do not.
func TestAClientThatHasUsedUpItsTimeWaits(t *testing.T) {
	now := time.Unix(1000, 0)
	b, busy, honest := newBudgets(func() time.Time { return now }), localPeer(1000), localPeer(1001)
	if err := b.ask(busy); err != nil {
		t.Fatal(err)
	}
	b.spend(busy, 26*time.Second) // a moment of the archive
	var costly *tooMuch
	if err := b.ask(busy); !errors.As(err, &costly) || costly.seconds() != 24 {
		t.Errorf("a client that has used up its time: %v", err)
	}
	if err := b.ask(honest); err != nil {
		t.Errorf("another client: %v", err)
	}
	now = now.Add(24*time.Second + time.Millisecond)
	if err := b.ask(busy); err != nil {
		t.Errorf("after the time that it was told: %v", err)
	}
	for i := range 100 { // many clients, each within its own budget
		b.spend(testPeer(i), 10*time.Second)
	}
	if err := b.ask(testPeer(50)); err == nil {
		t.Error("all clients together take any time")
	}
	if err := b.ask(honest); err != nil {
		t.Errorf("a client that comes for the first time: %v", err)
	}
	now = now.Add(time.Hour)
	if err := b.ask(testPeer(50)); err != nil {
		t.Errorf("an hour later: %v", err)
	}
}

func TestBudgetsOfManyClientsAreBounded(t *testing.T) {
	b := newBudgets(time.Now)
	worst := localPeer(1000)
	b.spend(worst, time.Hour)
	for i := range 2 * maxPeers {
		b.spend(testPeer(i), time.Second)
	}
	if len(b.of) > maxPeers || b.ask(worst) == nil {
		t.Errorf("%d budgets; the worst client is forgotten: %v", len(b.of), b.ask(worst) == nil)
	}
}

func TestBytesThatClientsTakeAreBounded(t *testing.T) {
	b, busy := bodies{held: map[peer]int{}}, localPeer(1000)
	if err := b.take(busy, maxBody+1); err == nil || errors.Is(err, errBusy) {
		t.Errorf("a huge answer: %v", err)
	}
	if err := b.take(busy, maxBody); err != nil {
		t.Fatal(err)
	}
	if err := b.take(busy, 1); !errors.Is(err, errBusy) {
		t.Errorf("beyond the share of a client: %v", err)
	}
	if err := b.take(localPeer(1001), maxBody); err != nil {
		t.Errorf("another client: %v", err)
	}
	if err := b.take(localPeer(1002), 1); !errors.Is(err, errBusy) {
		t.Errorf("beyond the bytes of all: %v", err)
	}
	b.give(busy, maxBody)
	b.give(localPeer(1001), maxBody)
	if b.all != 0 || len(b.held) != 0 {
		t.Errorf("%d bytes, %v", b.all, b.held)
	}
}
