// SPDX-License-Identifier: Apache-2.0

// Package deadline runs calls that a traced process can delay, with a timeout. Reading a process's
// memory, or files of /proc/PID that the kernel reads from it (cmdline, environ), waits for the
// process's page faults. A process can handle those itself (userfaultfd) or through its own file
// system (FUSE).
package deadline

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// MaxStuck is the most threads of this process that all traced processes together can block. At the
// limit, Call and Walk return ErrFull at once: Go ends the program at 10,000 threads.
const MaxStuck = 128

// ErrStuck means that a call timed out, or was not made because too many are stuck: ErrFull.
var ErrStuck = errors.New("the process blocks reads of its memory")

// ErrFull is an ErrStuck of a call that was not made, because MaxStuck others are stuck.
var ErrFull = fmt.Errorf("%d other reads hang: %w", MaxStuck, ErrStuck)

// ErrBusy is an ErrStuck of a call that the machine delayed, not the process.
var ErrBusy error = busy{}

type busy struct{}

func (busy) Error() string        { return "the machine is too busy" }
func (busy) Is(target error) bool { return target == ErrStuck }

// Stalled reports whether an error is that of a process that delayed a call.
func Stalled(err error) bool {
	return errors.Is(err, ErrStuck) && !errors.Is(err, ErrFull) && !errors.Is(err, ErrBusy)
}

var stuck atomic.Int32 // calls that timed out and still run

// Stuck returns how many calls timed out and still run.
func Stuck() int { return int(stuck.Load()) }

const (
	// turns is in how many parts Call waits. A stop of this process (SIGSTOP, a frozen cgroup) uses
	// up one.
	turns = 8
	// mostBusy is how many times its limit a call may take on the clock, while others use the
	// processors.
	mostBusy = 10
)

// Call runs f, which may wait in the kernel and use a processor for at most limit each, and take
// mostBusy times as long where it gets no processor. After a timeout, f keeps running, so it must
// not touch data that the caller uses. f stays on its thread, and what other goroutines do for it
// does not count. A panic of f becomes an error.
func Call[T any](limit time.Duration, f func() (T, error)) (T, error) {
	var none T
	m := &meter{}
	answers := start(func() (T, error) {
		defer m.join()()
		return f()
	})
	if answers == nil {
		return none, ErrFull
	}
	turn := limit / turns
	timer := time.NewTimer(turn)
	defer timer.Stop()
	w := watch{limits: Limits{Processor: limit, Waiting: limit, Total: mostBusy * limit}}
	for last := time.Now(); ; {
		select {
		case a := <-answers:
			return a.value, a.err
		case <-timer.C:
		}
		now := time.Now()
		over := w.look(min(now.Sub(last), turn), m.processor(), m.waits())
		if last = now; over == nil {
			timer.Reset(turn)
			continue
		}
		abandon(answers)
		if over.isBusy() {
			return none, ErrBusy
		}
		return none, ErrStuck
	}
}

type answer[T any] struct {
	value T
	err   error
}

// start runs f in a goroutine; nil: too many are stuck.
func start[T any](f func() (T, error)) <-chan answer[T] {
	if stuck.Load() >= MaxStuck {
		return nil
	}
	answers := make(chan answer[T], 1)
	go func() {
		var a answer[T]
		defer func() {
			if r := recover(); r != nil {
				a = answer[T]{err: fmt.Errorf("panic: %v", r)}
			}
			answers <- a
		}()
		a.value, a.err = f()
	}()
	return answers
}

// abandon counts a call as stuck until it returns.
func abandon[T any](answers <-chan answer[T]) {
	stuck.Add(1)
	go func() {
		<-answers
		stuck.Add(-1)
	}()
}
