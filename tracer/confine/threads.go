// SPDX-License-Identifier: Apache-2.0

package confine

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long threads have to give up their capabilities. One that waits for a driver, or for a
// page of a traced process that does not come, gives them up when it comes back.
const patience = time.Second

// drop takes all capabilities but those of keep from every thread. Linux keeps them by thread, and C code has threads of
// which Go does not know, so each is sent a signal, and asked until it shows that it has done it.
func drop(keep Set) error {
	if err := prepare(keep); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	bounded := mayEmptyBoundingSet()
	clean := 0
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		late, err := sweep(keep, bounded)
		if err != nil {
			return fmt.Errorf("give up capabilities: %w", err)
		}
		// A thread that was still to do it may have made another one, which was not in the list.
		if clean++; late != 0 {
			clean = 0
		}
		if clean == 2 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("thread %d hangs, and gives up its capabilities when it comes back", late)
		}
	}
}

// sweep asks every thread that has more than it shall have, and returns one of those; 0 if there is none.
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
			continue // it has ended
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

// setsOf reads the lines "CapPrm:\t000001ffffffffff" of a thread.
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

// mayEmptyBoundingSet says whether the process has the capability for that.
func mayEmptyBoundingSet() bool {
	held, err := Held()
	return err == nil && held.Has(Of(unix.CAP_SETPCAP))
}
