// SPDX-License-Identifier: Apache-2.0

package html

import (
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestSitesOfAPageSayWhatTheyLack(t *testing.T) {
	s := &ledger.Snapshot{End: 10, Processes: []ledger.Process{{PID: 7, Comm: "flood"}}, Sites: []ledger.Site{
		{API: "cudaMalloc", LiveObjects: 1, LiveBytes: 8, AllocObjects: 3, AllocBytes: 24, Evicted: 2, History: make([]uint64, ledger.HistoryLen)},
		{API: "cuMemAlloc", LiveObjects: 1, LiveBytes: 7, AllocObjects: 1, AllocBytes: 7, History: make([]uint64, ledger.HistoryLen)},
	}}
	p := newPayload(&Input{Snapshot: s, Stacks: stackMap{}})
	var marked []string
	for _, i := range p.Entries.Incomplete {
		marked = append(marked, p.Strings[i])
	}
	if text := strings.Join(marked, "|"); text != "2 allocations too many to follow: in no live figure|" {
		t.Errorf("marks %q", text)
	}
}
