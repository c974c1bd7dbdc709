// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"time"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/report/metrics"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Own returns what vramprof itself uses.
func (s *server) Own() metrics.Own {
	own, mapped := ceiling.Own()
	x := metrics.Own{
		Memory: own + mapped, Limit: s.memory.Bytes(), Kernel: s.kernel.bytes(s.tracer()),
		Dropped: uint64(s.relief.steps.Load()), Unrecorded: s.ooms.Unrecorded(), AlertsSkipped: s.alerts.Skipped(),
	}
	if !s.tracing.Load() {
		return x
	}
	x.Began = time.Unix(0, s.began.Load())
	rooms, refused, _ := s.tracer().UnwindRooms()
	for _, r := range rooms {
		x.Unwind = append(x.Unwind, metrics.Table(r))
	}
	x.UnwindRefused = refused
	x.JobAge, x.Stalling = s.tracer().JobAge(), len(procfs.Stalls())
	if s.archive != nil {
		stats := s.archive.Stats()
		x.Archive = &metrics.Archive{
			Bytes: uint64(max(stats.Bytes, 0)), Oldest: stats.Oldest, LostEvents: stats.LostEvents, LostTime: stats.LostTime, Failures: stats.Failures,
		}
	}
	return x
}

// watchRefusals logs once a minute, until ctx ends, what had no room.
func (s *server) watchRefusals(ctx context.Context) {
	var tables, alerts uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Minute):
		}
		if _, refused, example := s.tracer().UnwindRooms(); refused > tables {
			s.log.Warn("there was no room for unwind tables", "files", refused-tables, "example", example)
			tables = refused
		}
		if skipped := s.alerts.Skipped(); skipped > alerts {
			s.log.Warn("the commands of --on-oom and --on-leak did not run for some events: there were more than --alert-limit, or than the share of a process or user", "events", skipped-alerts)
			alerts = skipped
		}
	}
}
