// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long threads may take to drop their capabilities. A thread that is blocked in a
// driver, or in a page fault of a traced process, drops them when it returns.
const patience = time.Second

// Drop drops all capabilities except keep from every thread, and all from the sets that programs
// inherit. Linux stores capabilities per thread, and Go does not know the threads of C code. So
// Drop signals each thread and checks until it has dropped its capabilities.
func Drop(keep Set) error {
	if err := prepare(keep); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	bounded := mayEmptyBoundingSet()
	clean := 0
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		late, err := sweep(keep, bounded)
		if err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
		// A thread that was not done yet may have created another one, missing from the list.
		if clean++; late != 0 {
			clean = 0
		}
		if clean == 2 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("thread %d is blocked in a system call and drops its capabilities when the call returns", late)
		}
	}
}

// sweep signals every thread that has too many capabilities and returns one of them, or 0 if there
// is none.
func sweep(keep Set, bounded bool) (late int, err error) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, err
	}
	for _, thread := range threads {
		tid, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		has, err := setsOf(tid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has exited
		}
		if err != nil {
			return 0, err
		}
		if keep.Has(has["CapPrm"]) && has["CapInh"] == 0 && (!bounded || has["CapBnd"] == 0) {
			continue
		}
		late = tid
		if err := ask(tid); err != nil && !errors.Is(err, unix.ESRCH) {
			return 0, err
		}
	}
	return late, nil
}

// setsOf reads a thread's lines such as "CapPrm:\t000001ffffffffff".
func setsOf(tid int) (map[string]Set, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
	if err != nil {
		return nil, err
	}
	sets := map[string]Set{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.HasPrefix(key, "Cap") {
			set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			if err != nil {
				return nil, err
			}
			sets[key] = Set(set)
		}
	}
	return sets, nil
}

// mayEmptyBoundingSet reports whether the process has the capability to drop capabilities from the
// bounding set.
func mayEmptyBoundingSet() bool {
	held, err := Effective()
	return err == nil && held.Has(NewSet(unix.CAP_SETPCAP))
}
