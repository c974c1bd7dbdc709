// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"math"
	"time"

	"github.com/vramprof/vramprof/internal/ceiling"
	"github.com/vramprof/vramprof/report/format"
)

// reliefPause is how long a step has to show its effect.
const reliefPause = 5 * time.Second

// smallSites are the live bytes below which sites lose their stack, from what is missed least on.
var smallSites = []uint64{64 << 10, 1 << 20, 16 << 20}

// reliefs are the steps in the order in which they are tried. Each reports whether there was
// anything to drop.
func (s *server) reliefs() []reliefStep {
	steps := []reliefStep{{"answers to clients", s.refuseAnswers}, {"processes that have ended", s.forgetEnded}}
	for _, below := range smallSites {
		steps = append(steps, reliefStep{"stacks of sites below " + format.Bytes(below), func() bool { return s.tracer().Fold(below) >= leastFold }})
	}
	return append(steps,
		reliefStep{"stacks of new sites and live allocations of the processes with the most", s.tracer().Tighten},
		reliefStep{"all stacks", func() bool { return s.tracer().Fold(math.MaxUint64) >= leastFold }})
}

// leastFold is how many sites must have lost their stack for a step to be enough: they take 1 to 2
// KB each.
const leastFold = 1 << 12

type reliefStep struct {
	what string
	drop func() bool
}

// keepWithin keeps vramprof within --max-memory until ctx ends. Unlike record, serve never ends for
// want of memory.
func (s *server) keepWithin(ctx context.Context) {
	s.memory.Follow(ctx, reliefPause, func(string) bool {
		s.relieve()
		return true
	})
}

// relieve does the first step that has anything to drop.
func (s *server) relieve() {
	for _, step := range s.reliefs() {
		if step.drop() {
			s.relief.steps.Add(1)
			own, _ := ceiling.Own()
			s.log.Warn("memory is scarce: dropped detail (raise --max-memory)", "dropped", step.what, "bytes", own, "max", s.memory.Bytes())
			return
		}
	}
}

// refuseAnswers refuses answers over HTTP for a while: clients cost tracing no detail.
func (s *server) refuseAnswers() bool {
	pages := s.pages.Load()
	return pages != nil && pages.Relieve()
}

// forgetEnded drops processes that --keep would keep for longer, once per pause of --keep.
func (s *server) forgetEnded() bool {
	now := time.Now()
	if now.Sub(s.relief.forgot) < time.Duration(s.keep.Load()) {
		return false
	}
	s.relief.forgot = now
	s.tracer().Forget(0)
	return true
}
