// SPDX-License-Identifier: Apache-2.0

package sequence

import (
	"slices"
	"time"
)

// reading is something read at some time, from NVML or from the kernel half's maps. It is booked
// between the events that are older and those that are younger, however many are in the ring: so
// the books have one moment.
type reading struct {
	time uint64
	take func(tx *Tx)
}

// inFlight is how long an event may take from when its time is taken until it is in the ring.
const inFlight = uint64(time.Millisecond)

// Read has take book a reading of what, made at time, when the events before time are booked. take
// runs in the transaction that books the last of these events, which may be this one. A panic of
// take costs no more than what.
func (t *Tx) Read(what string, time uint64, take func(tx *Tx)) {
	t.add(time, func(tx *Tx) {
		defer t.defects.Recovered(what)
		take(tx)
	})
	if !t.running.Load() {
		t.TakeAll()
	}
}

func (t *Tx) add(time uint64, take func(tx *Tx)) {
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
func (t *Tx) Passed(time uint64) {
	t.upTo = max(t.upTo, time)
	t.TakeBefore(time)
}

// TakeAll takes all readings that wait. It is for when the ring is empty, or nobody reads it.
func (t *Tx) TakeAll() { t.TakeBefore(^uint64(0)) }

// TakeBefore takes the readings before time.
func (t *Tx) TakeBefore(time uint64) {
	for len(t.waiting) > 0 && t.waiting[0].time < time {
		x := t.waiting[0]
		t.waiting = t.waiting[1:]
		x.take(t)
	}
}
