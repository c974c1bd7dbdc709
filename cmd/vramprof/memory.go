// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	minCeiling  = 128 << 20 // an idle tracer takes 95 MiB, of which 75 are files and rings
	autoCeiling = 4 << 30   // --max-memory=auto is at most this
	autoAtLeast = 512 << 20 // and no less, if the machine has as much

	memoryTick = time.Second
	nearTick   = 250 * time.Millisecond // if less than near is left, which a burst could take within memoryTick
	near       = 512 << 20
)

// endsAt returns the memory use at which tracing ends: three quarters of the ceiling, because
// writing the results takes memory too.
func endsAt(ceiling uint64) uint64 { return ceiling / 4 * 3 }

// tightensAt returns the memory use, of end, above which the processes that take the most are
// traced in less detail.
func tightensAt(end uint64) uint64 { return end / 5 * 4 }

// ceilingOf reads --max-memory and returns bytes.
func ceilingOf(text string, machine uint64) (uint64, error) {
	if text == "auto" {
		return max(min(max(machine/4, autoAtLeast), autoCeiling, machine/4*3), minCeiling), nil
	}
	ceiling, err := humanize.ParseBytes(text)
	if err != nil || ceiling > math.MaxInt64 {
		return 0, fmt.Errorf("--max-memory: %q is neither auto nor a number of bytes (512MiB, 4GiB)", text)
	}
	if ceiling < minCeiling {
		return 0, fmt.Errorf("--max-memory is at least %s", words.Bytes(minCeiling))
	}
	return ceiling, nil
}

// memoryOf returns the machine's memory or the cgroup's limit, whichever is less.
func memoryOf(group memoryGroup) uint64 {
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
	return min(machine, group.limit)
}

// usual is the resident size of the files and rings of an idle tracer.
const usual = 75 << 20

// roomIn returns what mapped files and rings leave of the ceiling, at least half.
func roomIn(ceiling, mapped uint64) uint64 { return ceiling - min(mapped, ceiling/2) }

// ownMemory returns the anonymous memory of this process, and the resident size of its files and
// rings.
func ownMemory() (own, mapped uint64) {
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

// memoryWatch ends tracing before vramprof runs out of memory.
type memoryWatch struct {
	ceiling uint64
	group   memoryGroup
	own     func() (own, mapped uint64) // ownMemory
	reached atomic.Pointer[string]
}

// garbagePercent is GOGC: garbage may be half of live memory. Most of that is tables without
// pointers, which the collector skips.
const garbagePercent = 50

// newMemoryWatch reads --max-memory. It also makes Go collect garbage earlier than by default, and
// earlier still near the ceiling.
func newMemoryWatch(flag string) (*memoryWatch, error) {
	group := ownMemoryGroup()
	ceiling, err := ceilingOf(flag, memoryOf(group))
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(garbagePercent)
	debug.SetMemoryLimit(int64(endsAt(roomIn(ceiling, usual)) / 10 * 9))
	return &memoryWatch{ceiling: ceiling, group: group, own: ownMemory}, nil
}

// look returns why tracing must end now ("" if it need not), whether memory is scarce, and when to
// look again.
func (m *memoryWatch) look() (why string, scarce bool, again time.Duration) {
	own, mapped := m.own()
	end := endsAt(roomIn(m.ceiling, mapped))
	if own >= end {
		return fmt.Sprintf("vramprof uses %s of at most %s (--max-memory)", words.Bytes(own+mapped), words.Bytes(m.ceiling)), true, 0
	}
	left := end - own
	scarce = own >= tightensAt(end)
	if used, ok := m.group.used(); ok {
		end := m.group.limit / 8 * 7
		// If others take the most, ending would not help them, and the kernel would not kill
		// vramprof first.
		if used >= end && own >= used/8 {
			return fmt.Sprintf("vramprof's cgroup uses %s of at most %s, %s of it vramprof's", words.Bytes(used), words.Bytes(m.group.limit), words.Bytes(own)), true, 0
		}
		scarce = scarce || used >= tightensAt(end) && own >= used/8
		left = min(left, end-min(used, end))
	}
	if left < near {
		return "", scarce, nearTick
	}
	return "", scarce, memoryTick
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

// run watches memory until ctx ends, and calls end when the ceiling is reached. While memory is
// scarce, it calls tighten each time that it looks: the processes that take the most lose detail
// first.
func (m *memoryWatch) run(ctx context.Context, stderr io.Writer, tighten func() bool, end func()) {
	tick := time.NewTimer(nearTick)
	defer tick.Stop()
	gaveBack := time.Now()
	tightened := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := time.Now(); now.Sub(gaveBack) >= giveBackAfter {
			gaveBack = now
			giveBack()
		}
		text, scarce, again := m.look()
		if scarce { // unless it is garbage
			debug.FreeOSMemory()
			text, scarce, again = m.look()
		}
		tick.Reset(again)
		if text == "" && scarce && tighten() && !tightened {
			tightened = true
			fmt.Fprintln(stderr, "vramprof: memory is scarce: tracing the processes with the most sites and live allocations in less detail (raise --max-memory)")
		}
		if text != "" {
			m.reached.Store(&text)
			fmt.Fprintf(stderr, "vramprof: out of memory: %s: stopping and writing the results\n", text)
			end()
			return
		}
	}
}

// tables returns the memory, in bytes, for the tables of sites and live allocations: at most a
// quarter of the cgroup's limit.
func (m *memoryWatch) tables() uint64 { return roomIn(min(m.ceiling, m.group.limit/4), usual) }

// finish bounds the memory that writing the results takes: Go collects garbage before it exceeds
// the ceiling.
func (m *memoryWatch) finish() {
	debug.SetGCPercent(garbagePercent / 2)
	_, mapped := m.own()
	debug.SetMemoryLimit(int64(roomIn(m.ceiling, mapped) / 10 * 9))
	debug.FreeOSMemory()
}

var errOutOfMemory = errors.New("tracing ended early because vramprof ran out of memory (the report has the remedy)")

// warning returns the warning for all reports, "" if the ceiling was not reached.
func (m *memoryWatch) warning(s *ledger.Snapshot) string {
	why := m.reached.Load()
	if why == nil {
		return ""
	}
	var live uint64
	for i := range s.Sites {
		live += s.Sites[i].LiveObjects
	}
	return fmt.Sprintf("tracing ended early: %s, for %s live allocations, %s sites and %s processes "+
		"(trace fewer processes with -p or --name, sample fewer tensors with --sample, or raise --max-memory and the cgroup's limit)",
		*why, humanize.Comma(int64(live)), humanize.Comma(int64(len(s.Sites))), humanize.Comma(int64(len(s.Processes))))
}
