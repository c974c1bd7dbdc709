// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"slices"
	"time"

	"github.com/vramprof/vramprof/tracer/clock"
)

// readings are what was read at some time, from NVML or from the kernel half's maps. The books take a reading between the events
// that are older and those that are younger, however many are in the ring: then they have one moment. Guarded by Tracer.mu.
type readings struct {
	waiting []reading // by time
	upTo    uint64    // all events before then are in the books
}

type reading struct {
	time uint64
	take func()
}

// inFlight is how long an event may take from when its time is taken until it is in the ring.
const inFlight = uint64(time.Millisecond)

// add keeps a reading until the events before time are in the books.
func (r *readings) add(time uint64, take func()) {
	at, _ := slices.BinarySearchFunc(r.waiting, time+1, func(x reading, t uint64) int {
		if x.time < t {
			return -1
		}
		return 1
	})
	r.waiting = slices.Insert(r.waiting, at, reading{time, take})
}

// passed takes what was read before time. Events from before then may still come from calls that report on return when they were entered, as
// the destruction of a context.
func (r *readings) passed(time uint64) {
	r.upTo = max(r.upTo, time)
	r.takeBefore(time)
}

// takeAll takes what waits, when the ring is empty or nobody reads it.
func (r *readings) takeAll() { r.takeBefore(^uint64(0)) }

func (r *readings) takeBefore(time uint64) {
	for len(r.waiting) > 0 && r.waiting[0].time < time {
		x := r.waiting[0]
		r.waiting = r.waiting[1:]
		x.take()
	}
}

// read has the books take a reading of what is said to be read, made at time, in its turn; t.mu is held.
func (t *Tracer) read(what string, time uint64, take func()) {
	t.readings.add(time, func() {
		defer t.defects.Recovered(what)
		take()
	})
	if !t.readingEvents.Load() {
		t.readings.takeAll()
	}
}

// ringWasEmpty notes that all events up to a moment ago are in the books.
func (t *Tracer) ringWasEmpty() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.emptied++
	t.readings.passed(clock.Now() - inFlight)
}

// settleWithin is how long a snapshot waits for the events before it; they are in the ring mostly for pollInterval.
const settleWithin = 200 * time.Millisecond

// settle waits until the events before a moment are in the books, and the readings too.
func (t *Tracer) settle(moment uint64) {
	for end := time.Now().Add(settleWithin); t.readingEvents.Load() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		t.mu.Lock()
		done := t.readings.upTo > moment
		t.mu.Unlock()
		if done {
			return
		}
		_ = t.events.Flush() // it sleeps when there is nothing to read
	}
}
