// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Verification runs what loads programs, which the kernel verifies in the thread that loads them. Until
// Hurry it yields the processors to other threads. A nil Verification, or one without the right to hurry
// later (CAP_SYS_NICE), never yields. Any goroutine may call its methods.
type Verification struct {
	mu      sync.Mutex
	hurried bool
	threads map[int]int // that yield: their niceness before, by tid
}

const lowestPriority = 19

// NewVerification returns a Verification that yields, if it may.
func NewVerification() *Verification {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil || data[0].Effective&(1<<unix.CAP_SYS_NICE) == 0 {
		return nil
	}
	return &Verification{threads: map[int]int{}}
}

// Run calls f and returns when it has returned.
func (v *Verification) Run(f func()) {
	if v == nil {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		tid := unix.Gettid()
		v.begin(tid)
		defer v.end(tid)
		f()
	}()
	<-done
}

func (v *Verification) begin(tid int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, tid)
	if err == nil && !v.hurried && unix.Setpriority(unix.PRIO_PROCESS, tid, lowestPriority) == nil {
		v.threads[tid] = 20 - before // the system call returns 20 - niceness
	}
}

func (v *Verification) end(tid int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.threads, tid)
}

// Hurry ends the yielding: somebody waits.
func (v *Verification) Hurry() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hurried = true
	for tid, before := range v.threads {
		_ = unix.Setpriority(unix.PRIO_PROCESS, tid, before)
	}
	clear(v.threads)
}
