// SPDX-License-Identifier: Apache-2.0

// Package clock reads the clock of the kernel half's events, and calls what is due at intervals.
package clock

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns CLOCK_MONOTONIC in ns as the kernel half reads it: it cannot be set, and it does not
// advance while the machine sleeps. In a time namespace our own clock differs.
func Now() uint64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return uint64(ts.Nano() - Offset())
}

// Every calls do once per period, which must be above 0, until ctx ends: first after one period.
// No two calls overlap: a period that a call outlasts is left out.
func Every(ctx context.Context, period time.Duration, do func()) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// Offset returns by how many ns CLOCK_MONOTONIC of our time namespace is ahead.
var Offset = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/self/timens_offsets")
	return offsetIn(string(text))
})

// offsetIn parses "monotonic 100000 0": seconds and ns.
func offsetIn(text string) int64 {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "monotonic" {
			continue
		}
		seconds, err := strconv.ParseInt(fields[1], 10, 33)
		nanoseconds, err2 := strconv.ParseInt(fields[2], 10, 31)
		if err == nil && err2 == nil {
			return seconds*1e9 + nanoseconds
		}
	}
	return 0
}
