// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// meter knows the threads of a walk.
type meter struct {
	mu      sync.Mutex
	threads []thread
	ended   time.Duration // processor time of those that left
}

type thread struct {
	id    int
	began time.Duration // its processor time when it joined
}

type meterKey struct{}

// Join makes the calling goroutine one of the walk that ctx belongs to, until leave is called: what
// it uses and waits for counts. The goroutine stays on its thread meanwhile.
func Join(ctx context.Context) (leave func()) {
	if m, is := ctx.Value(meterKey{}).(*meter); is {
		return m.join()
	}
	return func() {}
}

func (m *meter) join() (leave func()) {
	runtime.LockOSThread()
	t := thread{id: unix.Gettid()}
	t.began = processorTime(t.id)
	m.mu.Lock()
	m.threads = append(m.threads, t)
	m.mu.Unlock()
	return func() {
		m.mu.Lock()
		m.ended += processorTime(t.id) - t.began
		m.threads = slices.DeleteFunc(m.threads, func(x thread) bool { return x.id == t.id })
		m.mu.Unlock()
		runtime.UnlockOSThread()
	}
}

// processor returns how long the walk has used a processor.
func (m *meter) processor() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := m.ended
	for _, t := range m.threads {
		sum += processorTime(t.id) - t.began
	}
	return sum
}

// waits reports whether a thread of the walk waits in the kernel now.
func (m *meter) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.threads, func(t thread) bool { return waits(t.id) })
}

// processorTime returns how long a thread of this process has run.
func processorTime(tid int) time.Duration {
	const ofThread, scheduler = 4, 2 // CPUCLOCK_PERTHREAD_MASK, CPUCLOCK_SCHED
	var t unix.Timespec
	if unix.ClockGettime(int32(^tid<<3|ofThread|scheduler), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// own are the system calls in which Go's threads wait for each other.
var own = []int{unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_EPOLL_PWAIT}

// waits reports whether a thread of this process sleeps in a system call, except for another
// thread: "310 0x1f3 …", not "running", which is also one that waits for a processor, nor "-1 …",
// a fault in this process's memory. Where the kernel does not tell, it reports true.
func waits(tid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
	if err != nil {
		return true
	}
	number, _, _ := bytes.Cut(text, []byte(" "))
	call, err := strconv.Atoi(string(number))
	return err == nil && call >= 0 && !slices.Contains(own, call)
}
