// SPDX-License-Identifier: Apache-2.0

// Package patience makes the calls that a traced process can keep waiting, and
// gives them up. Whoever reads the memory of a process, or of /proc/PID what the kernel
// reads out of it (cmdline, environ), waits for its page faults; and those a process can
// answer itself (userfaultfd), or have answered by a file system of its own (FUSE).
package patience

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// MaxStuck is how many threads of ours all processes together may keep waiting. With more, no
// further call is made: Go itself ends at 10,000 threads.
const MaxStuck = 128

// ErrStuck says that a call was given up, or not made since too many are stuck.
var ErrStuck = errors.New("the process does not let its memory be read")

var stuck atomic.Int32 // calls that were given up and go on

// Stuck is how many calls were given up and still wait.
func Stuck() int { return int(stuck.Load()) }

// Call makes a call and gives it up when limit is over: it then goes on alone, and must not
// touch what the caller uses. A panic of f is an error.
func Call[T any](limit time.Duration, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	if stuck.Load() >= MaxStuck {
		var none T
		return none, ErrStuck
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a = answer{err: fmt.Errorf("panic: %v", r)}
			}
			answers <- a
		}()
		a.value, a.err = f()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
	}
	stuck.Add(1)
	go func() {
		<-answers
		stuck.Add(-1)
	}()
	var none T
	return none, ErrStuck
}
