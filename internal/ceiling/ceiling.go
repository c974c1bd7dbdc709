// SPDX-License-Identifier: Apache-2.0

// Package ceiling keeps this process within an amount of memory, which is its share of the machine
// or of its cgroup.
package ceiling

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report/format"
)

const (
	minCeiling  = 128 << 20 // an idle tracer takes 95 MiB, of which 75 are files and rings
	autoCeiling = 4 << 30   // --max-memory=auto is at most this
	autoAtLeast = 512 << 20 // and no less, if the machine has as much

	farTick  = time.Second
	nearTick = 250 * time.Millisecond // if less than near is left, which a burst could take within farTick
	near     = 512 << 20
)

// endsAt returns the memory use at which tracing ends: three quarters of the ceiling, because
// writing the results takes memory too.
func endsAt(ceiling uint64) uint64 { return ceiling / 4 * 3 }

// tightensAt returns the memory use, of end, above which the processes that take the most are
// traced in less detail.
func tightensAt(end uint64) uint64 { return end / 5 * 4 }

// parse reads --max-memory and returns bytes.
func parse(text string, machine uint64) (uint64, error) {
	if text == "auto" {
		return max(min(max(machine/4, autoAtLeast), autoCeiling, machine/4*3), minCeiling), nil
	}
	ceiling, err := humanize.ParseBytes(text)
	if err != nil || ceiling > math.MaxInt64 {
		return 0, fmt.Errorf("--max-memory: %q is neither auto nor a number of bytes (512MiB, 4GiB)", text)
	}
	if ceiling < minCeiling {
		return 0, fmt.Errorf("--max-memory is at least %s", format.Bytes(minCeiling))
	}
	return ceiling, nil
}

// memoryOf returns the machine's memory or the cgroup's limit, whichever is less.
func memoryOf(g group) uint64 {
	machine := uint64(math.MaxInt64)
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(text)) { // "MemTotal:       24683520 kB"
		fields := strings.Fields(line)
		if len(fields) == 3 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseUint(fields[1], 10, 50); err == nil {
				machine = kib << 10
			}
		}
	}
	return min(machine, g.limit)
}

// usual is the resident size of the files and rings of an idle tracer.
const usual = 75 << 20

// roomIn returns what mapped files and rings leave of the ceiling, at least half.
func roomIn(ceiling, mapped uint64) uint64 { return ceiling - min(mapped, ceiling/2) }

// Own returns the anonymous memory of this process, and the resident size of its files and rings,
// in bytes.
func Own() (own, mapped uint64) {
	text, err := os.ReadFile("/proc/self/statm") // pages: size resident shared …
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return 0, 0
	}
	resident, err := strconv.ParseUint(fields[1], 10, 50)
	shared, err2 := strconv.ParseUint(fields[2], 10, 50)
	if err != nil || err2 != nil || shared > resident {
		return 0, 0
	}
	page := uint64(os.Getpagesize())
	return (resident - shared) * page, shared * page
}

// Watch compares the memory of this process with its ceiling. It is constant: any goroutine may
// call its methods.
type Watch struct {
	ceiling uint64
	group   group
	own     func() (own, mapped uint64) // Own
}

const (
	// garbagePercent is GOGC: garbage may be half of live memory. Most of that is tables without
	// pointers, which the collector skips.
	garbagePercent = 50

	// startPercent is GOGC from Opens to Began. Loading programs and reading libraries makes some
	// 100 MiB of garbage, with 2 to 20 MiB alive: at 50 %, Go would collect it a dozen times.
	startPercent = 400
)

// New reads --max-memory: "auto" or a number of bytes. It also makes Go collect garbage earlier
// than by default, and earlier still near the ceiling.
func New(flag string) (*Watch, error) {
	g := ownGroup()
	ceiling, err := parse(flag, memoryOf(g))
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(garbagePercent)
	debug.SetMemoryLimit(int64(endsAt(roomIn(ceiling, usual)) / 10 * 9))
	return &Watch{ceiling: ceiling, group: g, own: Own}, nil
}

// look returns why tracing must end now ("" if it need not), whether memory is scarce, and when to
// look again.
func (w *Watch) look() (why string, scarce bool, again time.Duration) {
	own, mapped := w.own()
	end := endsAt(roomIn(w.ceiling, mapped))
	if own >= end {
		return fmt.Sprintf("vramprof uses %s of at most %s (--max-memory)", format.Bytes(own+mapped), format.Bytes(w.ceiling)), true, 0
	}
	left := end - own
	scarce = own >= tightensAt(end)
	if used, ok := w.group.used(); ok {
		end := w.group.limit / 8 * 7
		// If others take the most, ending would not help them, and the kernel would not kill
		// vramprof first.
		if used >= end && own >= used/8 {
			return fmt.Sprintf("vramprof's cgroup uses %s of at most %s, %s of it vramprof's", format.Bytes(used), format.Bytes(w.group.limit), format.Bytes(own)), true, 0
		}
		scarce = scarce || used >= tightensAt(end) && own >= used/8
		left = min(left, end-min(used, end))
	}
	if left < near {
		return "", scarce, nearTick
	}
	return "", scarce, farTick
}

// Memory that a burst of work used goes back to the kernel some seconds later: reading the unwind
// tables of large libraries takes much. Go itself returns it over minutes, longer on a busy
// machine.
const (
	giveBackAfter = 10 * time.Second
	giveBackFrom  = 32 << 20
)

// giveBack returns unused memory to the kernel if there is much.
func giveBack() {
	unused := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}}
	if metrics.Read(unused); unused[0].Value.Kind() == metrics.KindUint64 && unused[0].Value.Uint64() >= giveBackFrom {
		debug.FreeOSMemory()
	}
}

// Follow watches memory until ctx ends. While memory is scarce, it calls scarce, at most once in a
// pause, with the reason if tracing must end now, or "". It returns when scarce returns false.
func (w *Watch) Follow(ctx context.Context, pause time.Duration, scarce func(why string) (more bool)) {
	tick := time.NewTimer(nearTick)
	defer tick.Stop()
	gaveBack, before := time.Now(), time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		if now.Sub(gaveBack) >= giveBackAfter {
			gaveBack = now
			giveBack()
		}
		_, is, again := w.look()
		if is && now.Sub(before) >= pause { // unless it is garbage
			debug.FreeOSMemory()
			var why string
			if why, is, again = w.look(); is {
				before = now
				if !scarce(why) {
					return
				}
			}
		}
		tick.Reset(max(again, nearTick))
	}
}

// Bytes returns the ceiling.
func (w *Watch) Bytes() uint64 { return w.ceiling }

// Tables returns the memory, in bytes, for the tables of sites and live allocations: at most a
// quarter of the cgroup's limit.
func (w *Watch) Tables() uint64 { return roomIn(min(w.ceiling, w.group.limit/4), usual) }

// Opens begins the time in which more garbage is kept than later, within the same ceiling: the
// session opens.
func (w *Watch) Opens() { debug.SetGCPercent(startPercent) }

// Began ends it: tracing begins.
func (w *Watch) Began() { debug.SetGCPercent(garbagePercent) }

// Finish bounds the memory that writing the results takes: Go collects garbage before it exceeds
// the ceiling. If much of that is taken already, Go collects more often and returns what is unused.
func (w *Watch) Finish() {
	own, mapped := w.own()
	limit := roomIn(w.ceiling, mapped) / 10 * 9
	debug.SetMemoryLimit(int64(limit))
	if own >= limit/4 {
		debug.SetGCPercent(garbagePercent / 2)
		debug.FreeOSMemory()
	}
}
