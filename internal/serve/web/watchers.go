// SPDX-License-Identifier: Apache-2.0

package web

import (
	"sync"
	"time"
)

const maxWatchers = 32 // pages that are followed at a time

// watchers are the pages that follow the session.
type watchers struct {
	mu   sync.Mutex
	set  map[*watcher]struct{}
	next uint64        // number of the next one
	last time.Time     // when there was one
	runs bool          // a goroutine composes updates, or takes moments for the chart
	wake chan struct{} // for this goroutine: there is a new page
}

// watcher is a page. One that is slow finds only the latest update: nothing is queued.
type watcher struct {
	peer   peer
	number uint64
	news   chan struct{}
	gone   chan struct{} // closed when another page takes its place
}

// makeRoom ends the oldest page of the peer with the most, if that has at least two more than the
// one that needs a place. l.mu is held.
func (l *watchers) makeRoom(of peer) bool {
	held := map[peer]int{}
	for x := range l.set {
		held[x.peer]++
	}
	var most *watcher
	for x := range l.set {
		if most == nil || held[x.peer] > held[most.peer] || held[x.peer] == held[most.peer] && x.number < most.number {
			most = x
		}
	}
	if held[most.peer] < held[of]+2 {
		return false
	}
	close(most.gone)
	delete(l.set, most)
	return true
}

// any reports whether anybody watches.
func (l *watchers) any() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.set) > 0
}

// tell tells all pages of an update.
func (l *watchers) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x := range l.set {
		select {
		case x.news <- struct{}{}:
		default: // it has not taken the last one yet
		}
	}
}
