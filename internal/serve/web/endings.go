// SPDX-License-Identifier: Apache-2.0

package web

import (
	"slices"
	"time"

	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// endings are what processes that have ended used at their peaks, which the moments of the page
// lack: each is found once, in whole moments.
type endings struct {
	known map[ledger.ProcessID][]purpose.Past
	tried time.Time
}

// of returns what the processes of a snapshot that have ended used.
func (e *endings) of(s *ledger.Snapshot, st callstack.Stacks, m *moments) (list []purpose.Past) {
	here, missing := map[ledger.ProcessID]int{}, false
	for i := range s.Processes {
		if p := &s.Processes[i]; p.End != 0 {
			here[p.ID()] = i
			_, known := e.known[p.ID()]
			missing = missing || !known
		}
	}
	if missing && time.Since(e.tried) > wholeAge {
		e.tried = time.Now()
		e.look(m.whole(time.Time{}).Snapshot, st, here)
	}
	for id, pasts := range e.known {
		at, ok := here[id]
		if !ok {
			delete(e.known, id)
			continue
		}
		for _, p := range pasts {
			p.Process = at
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b purpose.Past) int { return b.Compare(&a) })
	return list
}

// look finds them in a whole moment.
func (e *endings) look(s *ledger.Snapshot, st callstack.Stacks, wanted map[ledger.ProcessID]int) {
	if e.known == nil {
		e.known = map[ledger.ProcessID][]purpose.Past{}
	}
	found := map[int][]purpose.Past{}
	for _, p := range purpose.AtPeaks(s, st, nil, html.MaxPast) {
		found[p.Process] = append(found[p.Process], p)
	}
	for i := range s.Processes {
		id := s.Processes[i].ID()
		if _, ok := wanted[id]; ok && s.Processes[i].End != 0 && e.known[id] == nil {
			e.known[id] = append([]purpose.Past{}, found[i]...)
		}
	}
}
