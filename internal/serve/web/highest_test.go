// SPDX-License-Identifier: Apache-2.0

package web

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestThePageHasTheHighestThatOthersRead: the books have the highest since they were read last, and
// metrics read them as well.
func TestThePageHasTheHighestThatOthersRead(t *testing.T) {
	of := func(bytes uint64) *ledger.Snapshot {
		return &ledger.Snapshot{
			Processes: []ledger.Process{{PID: 7, Totals: []ledger.Total{{Kind: ledger.Device, LiveBytes: bytes}}}},
			Sites:     []ledger.Site{{Kind: ledger.Device, LiveBytes: bytes}},
		}
	}
	session := &fakeSession{snapshot: of(1)}
	s := newServer(session)
	read := func(by func() *Moment, highest uint64) uint64 {
		session.snapshot = of(1)
		session.snapshot.Highest = of(highest)
		if s.moment != nil {
			s.moment.Taken = time.Now().Add(-2 * momentAge)
		}
		return by().Snapshot.AtHighest().Sites[0].LiveBytes
	}
	read(s.forPage, 2)
	read(s.now, 9)
	read(s.now, 3)
	if got := read(s.forPage, 4); got != 9 {
		t.Errorf("the page has %d as the highest, want 9", got)
	}
	if got := read(s.forPage, 4); got != 4 {
		t.Errorf("then the page has %d as the highest, want 4", got)
	}
	s.paged = time.Now().Add(-3 * longestUpdate)
	read(s.now, 9)
	if got := read(s.forPage, 4); got != 4 {
		t.Errorf("a new page has %d as the highest, want 4", got)
	}
}
