// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"fmt"

	"github.com/vramprof/vramprof/bpf"
)

// faults returns sentences on what the tracer and its kernel half counted and no figure of the ledger
// shows.
func (t *Tracer) faults() (list []string) {
	for _, x := range []struct {
		counter uint32
		text    string
	}{
		{bpf.CounterNotNoted, "contexts and stream captures of processes that have too many, so that devices or graphs may be unknown: %d"},
		{bpf.CounterNotFollowed, "children of traced processes were not followed, since there were too many: %d"},
		{bpf.CounterNotHeld, "libraries that the command loaded without being paused, so that their first calls may be missed: %d"},
	} {
		var n uint64
		if err := t.coll.Maps["counters"].Lookup(x.counter, &n); err == nil && n > 0 {
			list = append(list, fmt.Sprintf(x.text, n))
		}
	}
	for _, text := range []string{t.unseen.Text(), t.usage.Silence(t.begin.Load()), t.shares.Text()} {
		if text != "" {
			list = append(list, text)
		}
	}
	return append(list, t.defects.Warnings()...)
}
