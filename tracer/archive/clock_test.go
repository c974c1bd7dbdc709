// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"fmt"
	"testing"
	"time"
	"unsafe"
)

// stepped returns a time as time.Now returns it after the clock was set by d, or after the machine
// slept so long: d later, with the same monotonic reading.
func stepped(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	out := at
	*(*uint64)(unsafe.Pointer(&out)) += uint64(int64(d/time.Second)) << 30 // seconds, above 30 bits of ns
	if out.Sub(at) != 0 || out.Round(0).Sub(at.Round(0)) != d {
		t.Skipf("time.Time of this Go is another: %v, %v", at, out)
	}
	return out
}

// The clock is time.Now's: it has a monotonic reading, which a set clock does not change.
func TestASetClockBeginsANewCapture(t *testing.T) {
	for _, step := range []time.Duration{3 * time.Second, -3 * time.Second, 5 * time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			m := newMachine(t)
			m.wall = time.Now()
			m.open(m.options())
			m.alloc(1 << 20)
			m.mu.Lock()
			m.wall = stepped(t, m.wall, step)
			m.mu.Unlock()
			m.wait("a new capture", func() bool { return len(m.captures()) == 2 })
		})
	}
}

func TestTheClocksDriftBeginsNoCapture(t *testing.T) {
	m := newMachine(t)
	m.wall = time.Now()
	m.open(m.options())
	m.mu.Lock()
	m.wall = stepped(t, m.wall, time.Second)
	m.mu.Unlock()
	for range 50 {
		m.alloc(1)
		time.Sleep(time.Millisecond)
	}
	if list := m.captures(); len(list) != 1 {
		t.Errorf("captures %q", list)
	}
}
