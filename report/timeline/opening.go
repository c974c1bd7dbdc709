// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// open takes a piece of the books with which a capture begins whose session began earlier.
func (u *inUse) open(piece ledger.Carried) {
	if u.opening == nil {
		u.opening = ledger.New(ledger.Options{})
		u.opening.Observe(carried{u})
	}
	u.opening.Tell(piece)
}

// endOpening takes what PyTorch's allocators had when the capture began.
func (u *inUse) endOpening() {
	s := u.opening.Snapshot(0, time.Time{})
	u.opening = nil
	u.clock = max(u.clock, s.Opened)
	for i := range s.Tensors {
		if x := &s.Tensors[i]; x.Allocated != 0 {
			u.told(s.Processes[x.Process].PID, x.Device, x.Allocated, x.Reserved)
		}
	}
}

// carried takes the allocations that lived when the capture began. Physical memory is left out: the
// books have no handle of it.
type carried struct{ u *inUse }

func (c carried) Allocated(a ledger.Allocation, _ uint64) {
	if a.Kind.Owned() && a.Space != ledger.Physical && a.Space != ledger.Blocks {
		c.u.alloc(a.PID, liveKey{a.Space, a.Address}, held{a.Size, a.Device})
	}
}

func (carried) Began(process, pid uint32)                  {}
func (carried) Freed(a ledger.Allocation, time uint64)     {}
func (carried) Mapped(m ledger.Mapping, time uint64)       {}
func (carried) Unmapped(m ledger.Mapping, time uint64)     {}
func (carried) Moved(a ledger.Allocation)                  {}
func (carried) Unmatched(a ledger.Allocation, time uint64) {}
