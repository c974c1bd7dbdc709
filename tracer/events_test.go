// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTheFirstEventAfterAWhileWakesTheReader(t *testing.T) {
	m := newMachine(t, 1)
	m.idle = time.Hour
	m.trace(nil)
	p := m.script("calls_c", nil, "ready", "wait", "cudaMalloc p 1000", "wait", "cudaMalloc q 2000", "wait")
	p.ready()
	for _, ring := range m.mapping.rings { // programs that begin anywhere wake it too
		fd, err := ring.FD()
		if err == nil {
			err = unix.EpollCtl(m.mapping.ready, unix.EPOLL_CTL_DEL, fd, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
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
