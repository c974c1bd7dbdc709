// SPDX-License-Identifier: Apache-2.0

package reporttest

import (
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Flooded is a process that exceeded its shares, beside one that did not.
func Flooded() (*ledger.Snapshot, StackMap) {
	site := func(process int, stack, live uint64) ledger.Site {
		return ledger.Site{
			Process: process, Stack: stack, API: "cudaMalloc", LiveObjects: 1, LiveBytes: live << 20, AllocObjects: 9, AllocBytes: 9 << 20,
			History: make([]uint64, ledger.HistoryLen),
		}
	}
	s := &ledger.Snapshot{
		End: 10e9,
		Processes: []ledger.Process{
			{PID: 7, Comm: "flood", Lost: 12, Beyond: []ledger.Beyond{{Table: "sites", Count: 3}, {Table: ledger.BeyondStacks, Count: 5}}},
			{PID: 8, Comm: "honest"},
		},
		Sites:    []ledger.Site{site(0, 0, 9), site(0, 1, 8), site(1, 2, 7)},
		Failures: []ledger.Failure{{Process: 0, API: "cudaMalloc", Result: 2, Count: 4, Crowded: 4}, {Process: 1, API: "cudaMalloc", Stack: 2, Result: 2, Count: 1}},
	}
	s.Sites[0].Crowded, s.Sites[0].Evicted = 3, 2
	return s, StackMap{2: []callstack.Frame{{Function: "honest_work"}}}
}
