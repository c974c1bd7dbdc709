// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
)

// forgetAfter is how long the tables of an ended process stay, for stacks that are on their way.
const forgetAfter = 5 * time.Second

// work does the worker's jobs until ctx ends.
func (t *Tracer) work(ctx context.Context) {
	forget := time.NewTimer(time.Hour)
	defer forget.Stop()
	forgetting, again := false, false
	reap := time.NewTicker(time.Second)
	defer reap.Stop()
	review := time.NewTicker(t.config.pace.Review)
	defer review.Stop()
	for {
		select {
		case <-ctx.Done():
			t.introduceDue()
			t.loads.Wait()
			releaseAll(t.coll.Maps["processes"])
			return
		case <-forget.C:
			forgetting = again
			if again = false; forgetting {
				forget.Reset(forgetAfter)
			}
			t.timed(t.forget)
		case <-reap.C:
			t.timed(t.reap)
		case <-review.C:
			t.timed(t.review)
		case <-t.jobs.wake:
		}
		for ctx.Err() == nil {
			n, ok := t.jobs.take()
			if !ok {
				break
			}
			if n.kind == jobForget {
				if again = forgetting; !forgetting { // further ends do not put it off
					forget.Reset(forgetAfter)
				}
				forgetting = true
			} else {
				t.do(n)
			}
			t.jobs.end()
		}
	}
}

// timed does what a timer asks for, which has an age as jobs have.
func (t *Tracer) timed(do func()) {
	t.jobs.begin(time.Now())
	defer t.jobs.end()
	do()
}

// warn tells the books a sentence.
func (t *Tracer) warn(text string) { t.sequencer.Tell(ledger.Warning{Text: text}) }

// warnOf tells the books a sentence about a process.
func (t *Tracer) warnOf(pid uint32, text string) {
	t.sequencer.Tell(ledger.Warning{PID: pid, Text: text})
}

// reap ends processes whose end the kernel did not report.
func (t *Tracer) reap() {
	tx := t.sequencer.Begin()
	defer tx.Done()
	defer t.defects.Recovered("a look at processes")
	for _, pid := range t.reaper.Gone() {
		t.exited(tx, &bpf.Event{Pid: pid, Tid: pid, Time: clock.Now()})
	}
}

// review attaches and detaches the probes of wrappers.
func (t *Tracer) review() {
	defer t.defects.Recovered("a look at the probes of the runtime")
	t.files.Review()
	t.warnOfStalled()
}

var ownPid = uint32(os.Getpid())

// mapped is told of each executable mapping made anywhere.
func (t *Tracer) mapped(pid uint32, cuda bool) {
	if cuda {
		t.usage.Wake()
		t.jobs.add(job{kind: jobScan, pid: pid})
	}
	// A scan loads the tables of processes that are new to it. A load that is under way may have passed
	// this mapping.
	if t.table.UsesCUDA(pid) {
		t.jobs.add(job{kind: jobLoad, pid: pid})
	}
}

// lookAtHeld prepares a process of the command that stopped because its dynamic loader has loaded
// libraries, and lets it go on.
func (t *Tracer) lookAtHeld(pid uint32) {
	defer unix.Kill(int(pid), unix.SIGCONT) // whatever happens
	if libraries.MayMap(pid) {
		if err := t.discover(pid); err != nil {
			t.warn(err.Error())
		}
		t.loadTables(pid, 0)
	}
}
