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

var stuck atomic.Int32 // calls that timed out and still run

// Stuck returns how many calls timed out and still run.
func Stuck() int { return int(stuck.Load()) }

// turns is in how many parts Call waits. A stop of this process (SIGSTOP, a frozen cgroup) uses up
// one.
const turns = 8

// Call runs f and waits at most limit, in which this process runs. After a timeout, f keeps
// running, so it must not touch data that the caller uses. A panic of f becomes an error.
func Call[T any](limit time.Duration, f func() (T, error)) (T, error) {
	var none T
	answers := start(f)
	if answers == nil {
		return none, ErrFull
	}
	timer := time.NewTimer(limit / turns)
	defer timer.Stop()
	for range turns {
		select {
		case a := <-answers:
			return a.value, a.err
		case <-timer.C:
			timer.Reset(limit / turns)
		}
	}
	abandon(answers)
	return none, ErrStuck
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
