// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/ledger/caching"
	"github.com/vramprof/vramprof/tracer/ledger/codec"
)

// allocatorInputs returns a reading of PyTorch's allocators as messages; allocatorParts is the
// inverse.
func allocatorInputs(in *ledger.AllocatorReading) (list []*wire.Input) {
	for next, last := 0, false; !last; {
		c := codec.NewWriter()
		in.Carry(c, &next)
		last = in.Done(next)
		m := &wire.Allocator{Pid: in.PID, Part: uint32(len(list)), Last: last, Time: in.Time, Data: c.Data}
		list = append(list, &wire.Input{What: &wire.Input_Allocator{Allocator: m}})
	}
	return list
}

// allocatorParts collects the parts of a reading.
type allocatorParts struct {
	in    ledger.AllocatorReading
	parts uint32
	next  int
}

// take adds a part, and tells the books when the reading is complete. It drops a reading with a
// missing part.
func (a *allocatorParts) take(m *wire.Allocator, books ledger.Books) error {
	if m.GetPart() == 0 {
		*a = allocatorParts{in: ledger.AllocatorReading{PID: m.GetPid(), Time: m.GetTime(), Reading: &caching.Reading{}}}
	}
	if m.GetPart() != a.parts || m.GetPid() != a.in.PID || a.in.Reading == nil {
		*a = allocatorParts{}
		return nil
	}
	c := codec.NewReader(m.GetData(), nil, nil, func(int) {})
	if a.in.Carry(c, &a.next); c.Bad {
		return errColumns
	}
	a.parts++
	if m.GetLast() {
		books.Tell(a.in)
		*a = allocatorParts{}
	}
	return nil
}
