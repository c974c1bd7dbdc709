// SPDX-License-Identifier: Apache-2.0

package booking

import (
	"slices"
	"time"
)

// reading is something read at some time, from NVML or from the kernel half's maps. It is booked
// between the events that are older and those that are younger, however many are in the ring: so
// the books have one moment.
type reading struct {
	time uint64
	take func(turn *Turn)
}

// inFlight is how long an event may take from when its time is taken until it is in the ring.
const inFlight = uint64(time.Millisecond)

// Read has take book a reading of what, made at time, when the events before time are booked. take
// runs in the turn that books the last of these events, which may be this one. A panic of take
// costs no more than what.
func (t *Turn) Read(what string, time uint64, take func(turn *Turn)) {
	t.add(time, func(turn *Turn) {
		defer t.defects.Recovered(what)
		take(turn)
	})
	if !t.running.Load() {
		t.TakeAll()
	}
}

func (t *Turn) add(time uint64, take func(turn *Turn)) {
	at, _ := slices.BinarySearchFunc(t.waiting, time+1, func(x reading, t uint64) int {
		if x.time < t {
			return -1
		}
		return 1
	})
	t.waiting = slices.Insert(t.waiting, at, reading{time, take})
}

// Passed takes the readings before time, as the event that comes next is of time. Events from
// before then may still come from calls that are reported on return with the time of their entry,
// as the destruction of a context.
func (t *Turn) Passed(time uint64) {
	t.upTo = max(t.upTo, time)
	t.TakeBefore(time)
}

// TakeAll takes all readings that wait. It is for when the ring is empty, or nobody reads it.
func (t *Turn) TakeAll() { t.TakeBefore(^uint64(0)) }

// TakeBefore takes the readings before time.
func (t *Turn) TakeBefore(time uint64) {
	for len(t.waiting) > 0 && t.waiting[0].time < time {
		x := t.waiting[0]
		t.waiting = t.waiting[1:]
		x.take(t)
	}
}
