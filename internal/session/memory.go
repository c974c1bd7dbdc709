// SPDX-License-Identifier: Apache-2.0

package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/tracer/ledger"
)

var errOutOfMemory = errors.New("tracing ended early because vramprof ran out of memory (the report has the remedy)")

// keepWithinMemory ends tracing before vramprof exceeds --max-memory, until ctx ends. While memory
// is scarce, the processes that take the most lose detail first.
func (s *Session) keepWithinMemory(ctx context.Context, end func()) {
	tightened := false
	s.memory.Follow(ctx, 0, func(why string) (more bool) {
		if why != "" {
			s.exceeded.Store(&why)
			fmt.Fprintf(s.Stderr, "vramprof: out of memory: %s: stopping and writing the results\n", why)
			end()
			return false
		}
		if s.tracer.Tighten() && !tightened {
			tightened = true
			fmt.Fprintln(s.Stderr, "vramprof: memory is scarce: tracing the processes with the most sites and live allocations in less detail (raise --max-memory)")
		}
		return true
	})
}

// memoryWarning returns the warning for all reports, "" if tracing did not end for want of memory.
func (s *Session) memoryWarning(snapshot *ledger.Snapshot) string {
	why := s.exceeded.Load()
	if why == nil {
		return ""
	}
	var live uint64
	for i := range snapshot.Sites {
		live += snapshot.Sites[i].LiveObjects
	}
	return fmt.Sprintf("tracing ended early: %s, for %s live allocations, %s sites and %s processes "+
		"(trace fewer processes with -p or --name, sample fewer tensors with --sample, or raise --max-memory and the cgroup's limit)",
		*why, humanize.Comma(int64(live)), humanize.Comma(int64(len(snapshot.Sites))), humanize.Comma(int64(len(snapshot.Processes))))
}
