// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Processes that allocate at once and exit milliseconds later. With fork alone, each is booked,
// since children of a traced process are traced. A process that executes a program may exit before
// its name is read; then it is counted.
func TestScaleShortProcessesAreBookedOrCounted(t *testing.T) {
	onlyLong(t)
	dir := setup(t)
	env := dir.Env(t, 1, 64<<30)
	name := fmt.Sprintf("storm%x", time.Now().UnixNano()&0xffffffff) // at most 15 characters with the letter
	type storm struct {
		what     string
		children uint64
		target   *target
	}
	storms := []storm{{what: "forks", children: 1500}, {what: "execs", children: 100}, {what: "vforks", children: 50}}
	folder := t.TempDir()
	for i := range storms {
		s := &storms[i]
		program := copyFile(t, dir.Program("storm_c"), folder+"/"+name+s.what[:1])
		own := env
		if s.what == "vforks" {
			own = append(env[:len(env):len(env)], "FAKECUDA_LATENCY_US=1000") // for the threads that allocate in the meantime
		}
		s.target = startTarget(t, own, program, s.what, fmt.Sprint(s.children), "16")
		s.target.expectReady()
	}
	l := startLeaks(t, env, "--name", "^"+name).ready()
	before := l.checkVitals("before")
	began := time.Now()
	for _, s := range storms {
		s.target.next()
	}
	for _, s := range storms {
		s.target.expect("done")
	}
	t.Logf("the storms took %v", time.Since(began).Round(time.Millisecond))
	l.afterASecond()
	after := l.checkVitals("after")
	r := l.stop().leaks()
	l.checkCalm()
	for _, s := range storms {
		s.target.end()
	}
	nameless, calls := namelessOf(r.Warnings)
	t.Logf("%d nameless processes with %d calls; %s", nameless, calls, told(r))
	const forked, all = 1500, 1500 + 100 + 50
	children, allocated, bytes := uint64(0), uint64(0), uint64(0)
	for _, p := range r.Processes {
		if slices.ContainsFunc(storms, func(s storm) bool { return s.target.pid() == int(p.PID) }) {
			continue
		}
		children++
		for _, x := range p.Totals {
			allocated += x.AllocatedCount
			bytes += x.AllocatedBytes
		}
	}
	t.Logf("%d children with %d allocations", children, allocated)
	if children < forked || children > all || children+nameless < all {
		t.Errorf("%d processes are booked and %d counted as nameless, want %d and more, and %d together", children, nameless, forked, all)
	}
	if allocated < 2*forked || allocated > 2*children || bytes != 1500*allocated {
		t.Errorf("%d allocations of %d bytes in %d children, want two of 3000 in each", allocated, bytes, children)
	}
	if r.Losses.LostEvents != 0 || r.Losses.Torn != 0 || r.Losses.Evicted != 0 {
		t.Error(told(r))
	}
	if after.files > before.files+16 || after.threads > before.threads+32 {
		t.Errorf("vramprof had %v, has %v", before, after)
	}
}

var namelessText = regexp.MustCompile(`^processes that ended before their names could be read, and are left out: (\d+), with (\d+) allocations and frees$`)

// namelessOf includes other tests' processes, which run at the same time.
func namelessOf(warnings []string) (processes, calls uint64) {
	for _, w := range warnings {
		if m := namelessText.FindStringSubmatch(strings.TrimSpace(w)); m != nil {
			processes, _ = strconv.ParseUint(m[1], 10, 64)
			calls, _ = strconv.ParseUint(m[2], 10, 64)
		}
	}
	return processes, calls
}
