// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/tablecache"
)

// The kernel takes about a second to verify the programs. Where it has accepted the same ones before,
// a command starts meanwhile, and only stops when it has loaded the driver's library: before that, no
// call of CUDA can be missed. The first time the command waits, because it must not run if it cannot
// be traced.

// acceptedKey names the programs and the kernel.
func acceptedKey() tablecache.Key {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return tablecache.KeyOf("programs", bpf.Sum(), string(u.Release[:]), string(u.Version[:]), string(u.Machine[:]))
}

// mayStartEarly reports whether the command starts before the programs are verified.
func (t *Tracer) mayStartEarly() bool {
	return len(t.config.Command) > 0 && t.config.Tables != nil && mayContinue() && t.config.Tables.Marked(acceptedKey())
}

// markAccepted notes that the kernel has accepted the programs. Without room for the mark, the next
// command waits as this one did.
func (t *Tracer) markAccepted() {
	if t.config.Tables != nil {
		_ = t.config.Tables.Mark(acceptedKey())
	}
}

// passHeld lets the command's processes go on when they have loaded libraries, until the probes can be
// attached. Those that have loaded the driver's library wait for the worker.
func (t *Tracer) passHeld(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = t.events.Flush() })()
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { t.continueHeld(ctx) })
	go func() {
		_ = t.prober.Wait()
		cancel()
	}()
	var record ringbuf.Record
	for ctx.Err() == nil {
		t.events.SetDeadline(time.Now().Add(pollInterval))
		t.drain(&record)
	}
}

// continueHeld continues stopped processes until ctx ends, and then leaves the others to the worker.
func (t *Tracer) continueHeld(ctx context.Context) {
	var waiting []job
	defer func() {
		for _, n := range waiting {
			t.jobs.add(n)
		}
		t.jobs.wakeWorker()
	}()
	for {
		for n, ok := t.jobs.takeHeld(); ok; n, ok = t.jobs.takeHeld() {
			if libraries.MapsDriver(n.pid) {
				t.verification.Hurry()
				waiting = append(waiting, n)
			} else {
				_ = unix.Kill(int(n.pid), unix.SIGCONT)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-t.jobs.wake:
		}
	}
}

// killCommand ends a command that has started early and cannot be traced.
func (t *Tracer) killCommand() {
	if t.command != nil {
		_ = t.command.cmd.Process.Kill()
	}
}
