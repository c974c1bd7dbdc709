// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// TestEventsAreBookedUntilTheBooksAreTaken: a read of a process may take seconds to end, on a busy
// machine, in which the kernel half goes on to count. Growth is wrong if what it counts has no
// events.
func TestEventsAreBookedUntilTheBooksAreTaken(t *testing.T) {
	m := newMachine(t, 1)
	m.keepTorch("2.6")
	m.reads = &heldReads{began: make(chan struct{}), release: make(chan struct{})}
	m.trace(nil)
	p := m.follow("2.6", nil, "alloc a 32M", "totals", "wait", "alloc b 32M", "alloc c 32M", "totals", "wait")
	p.totals()
	<-m.reads.began
	ended := make(chan struct{})
	go func() {
		m.lastly()
		close(ended)
	}()
	time.Sleep(500 * time.Millisecond) // by now, tracing ends
	p.next()
	told := p.totals()
	close(m.reads.release)
	<-ended
	s := m.Snapshot()
	x := tensorsOf(t, s, p.pid())[0]
	sampled := uint64(0)
	for i := range s.Sites {
		if s.Sites[i].Kind == ledger.Tensor {
			for _, w := range s.Sites[i].Cohorts {
				sampled += w.Seen
			}
		}
	}
	if x.AllocObjects != 3 || x.Allocated != told[0].Allocated || sampled != 3 {
		t.Errorf("the books have %+v, and events of %d tensors", x, sampled)
	}
}
