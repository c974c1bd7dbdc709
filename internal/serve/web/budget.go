// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of what answers cost. A client that comes for the first time has all of its budget, and is
// answered even if others have used up what all together may take.
const (
	peerTime = 20 * time.Second // of a processor, saved up by one peer
	peerPart = 4                // it gets one part in so many of a processor
	allTime  = 60 * time.Second // saved up for all peers
	allPart  = 2
	maxPeers = 4096 // budgets that are not full

	maxBytes = 128 << 20 // of answers that clients are taking
	maxBody  = 64 << 20  // of one answer, and of those to one peer
)

// bucket is a budget that fills up over time.
type bucket struct {
	left time.Duration
	when time.Time // that left is of
}

func (b *bucket) fill(now time.Time, full time.Duration, part time.Duration) {
	b.left, b.when = min(full, b.left+now.Sub(b.when)/part), now
}

// budgets are the processor time that peers may take for answers.
type budgets struct {
	now func() time.Time

	mu  sync.Mutex
	of  map[peer]*bucket // those that are not full
	all bucket
}

func newBudgets(now func() time.Time) *budgets {
	return &budgets{now: now, of: map[peer]*bucket{}, all: bucket{allTime, now()}}
}

// ask returns an error if a peer must wait before it gets an answer that costs time.
func (b *budgets) ask(p peer) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.all.fill(now, allTime, allPart)
	x := b.of[p]
	if x == nil {
		return nil
	}
	if x.fill(now, peerTime, peerPart); x.left >= peerTime {
		delete(b.of, p)
		return nil
	}
	wait := max(-x.left*peerPart, -b.all.left*allPart)
	if wait < 0 {
		return nil
	}
	return &tooMuch{max(wait, time.Second)}
}

// spend takes off what an answer has cost.
func (b *budgets) spend(p peer, cost time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.all.fill(now, allTime, allPart)
	b.all.left -= cost
	x := b.of[p]
	if x == nil {
		if len(b.of) >= maxPeers {
			b.drop(now)
		}
		x = &bucket{peerTime, now}
		b.of[p] = x
	}
	x.fill(now, peerTime, peerPart)
	x.left -= cost
}

// drop forgets the quarter of the peers that have used least.
func (b *budgets) drop(now time.Time) {
	list := make([]peer, 0, len(b.of))
	for p, x := range b.of {
		x.fill(now, peerTime, peerPart)
		list = append(list, p)
	}
	slices.SortFunc(list, func(p, q peer) int { return cmp.Compare(b.of[q].left, b.of[p].left) })
	for _, p := range list[:len(list)/4] {
		delete(b.of, p)
	}
}

// costing runs f and returns the processor time that it took.
func costing(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	f()
	return threadTime() - before
}

func threadTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bodies are the answers that clients are taking.
type bodies struct {
	mu   sync.Mutex
	all  int
	held map[peer]int
}

// take counts an answer of n bytes. The caller must give it back, unless there is an error.
func (b *bodies) take(p peer, n int) error {
	if n > maxBody {
		return &requestError{http.StatusInsufficientStorage, fmt.Sprintf("the answer is larger than %d MiB (select with pid, pod or top, or use vramprof report --connect)", maxBody>>20)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held[p]+n > maxBody || b.all+n > maxBytes {
		return errBusy
	}
	b.all += n
	b.held[p] += n
	return nil
}

func (b *bodies) give(p peer, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.held[p] -= n; b.held[p] == 0 {
		delete(b.held, p)
	}
}
