// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"
)

func TestTheFirstEventAfterAWhileWakesTheReader(t *testing.T) {
	m := newMachine(t, 1)
	m.idle = time.Hour
	m.trace(nil)
	p := m.script("calls_c", nil, "ready", "wait", "cudaMalloc p 1000", "wait", "cudaMalloc q 2000", "wait")
	p.ready()
	if err := m.discovery.mapping.Mute(); err != nil { // programs that begin anywhere wake it too
		t.Fatal(err)
	}
	for i := range uint64(2) {
		m.eventually("it sleeps", func() bool {
			var sleeps uint32
			return m.coll.Maps["reader_sleeps"].Lookup(uint32(0), &sleeps) == nil && sleeps != 0
		})
		p.next()
		m.eventually("what happened is booked", func() bool {
			var objects uint64
			for _, x := range m.Snapshot().Sites {
				if x.LiveBytes >= 1000 {
					objects += x.LiveObjects
				}
			}
			return objects == i+1
		})
	}
}
