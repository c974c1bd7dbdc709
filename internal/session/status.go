// SPDX-License-Identifier: Apache-2.0

package session

import (
	"slices"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	statusSpan  = 60 // seconds that the growth is of
	leastStatus = 10 // seconds before a growth is shown
)

// status is what the line says while vramprof traces. It is told once a second.
type status struct {
	traced time.Duration
	now    ledger.Glance
	live   []uint64 // of the last minute, oldest first
}

func (x *status) take(traced time.Duration, now ledger.Glance) {
	x.traced, x.now = traced.Round(time.Second), now
	x.live = append(x.live, now.Live)
	x.live = x.live[max(len(x.live)-statusSpan, 0):]
}

// growth compares the lowest live bytes of two halves of the last minute: what a step of a training
// allocates and frees is in neither.
func (x *status) growth() (perMinute int64, ok bool) {
	half := len(x.live) / 2
	if 2*half < leastStatus {
		return 0, false
	}
	later := x.live[len(x.live)-half:]
	earlier := x.live[len(x.live)-2*half : len(x.live)-half]
	return report.PerMinute(int64(slices.Min(later)-slices.Min(earlier)), uint64(half)*uint64(time.Second)), true
}

// text returns "traced 12s 2 processes 41.2 GiB live +696 MiB/min over 12s 3 events lost", in at
// most width columns: the least important parts are left out.
func (x *status) text(width int) string {
	type part struct {
		text string
		keep int // the highest goes last
	}
	parts := []part{
		{"traced " + x.traced.String(), 3},
		{format.Count(uint64(x.now.Processes), "process"), 1},
		{format.Bytes(x.now.Live) + " live", 6},
	}
	if perMinute, ok := x.growth(); ok {
		rate := "steady"
		if perMinute != 0 {
			rate = format.Difference(perMinute) + "/min"
		}
		parts = append(parts, part{rate, 4}, part{"over " + format.Span(uint64(len(x.live)/2*2)*uint64(time.Second)), 0})
	}
	if x.now.Lost > 0 {
		parts = append(parts, part{format.Count(x.now.Lost, "event") + " lost", 5})
	}
	for {
		line := ""
		for _, p := range parts {
			switch {
			case line == "":
			case p.keep == 0:
				line += " " // it belongs to the growth
			default:
				line += "  "
			}
			line += p.text
		}
		if format.Width(line) <= width {
			return line
		}
		if len(parts) == 1 {
			return format.Cut(line, width)
		}
		least := 0
		for i := range parts {
			if parts[i].keep < parts[least].keep {
				least = i
			}
		}
		parts = slices.Delete(parts, least, least+1)
	}
}
