// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	maxMarks = 1000 // of out-of-memory errors
	maxLarge = 20   // of the driver allocations
)

// mark is a Mark before its process is known.
type mark struct {
	Mark
	pid uint32
}

// observer sees the inputs of the ledger.
type observer struct {
	ledger.Books
	sizes *Sizes
	ooms  []mark
	large []mark // the largest driver allocations, largest first
}

func (o *observer) Apply(e *ledger.Event) {
	o.Books.Apply(e)
	o.sizes.event(e)
	switch e.Op {
	case ledger.OutOfMemory:
		if len(o.ooms) < maxMarks {
			o.ooms = append(o.ooms, markOf(e, OutOfMemory))
		}
	case ledger.Alloc:
		if e.Kind.Owned() && e.Size != ledger.UnknownSize && (len(o.large) < maxLarge || e.Size > o.large[maxLarge-1].Size) {
			o.noteLarge(markOf(e, Large))
		}
	}
}

func markOf(e *ledger.Event, kind MarkKind) mark {
	return mark{Mark{Time: e.Time, Kind: kind, Device: e.Device, Size: e.Size, Stack: e.Stack, API: e.API}, e.PID}
}

func (o *observer) noteLarge(m mark) {
	at, _ := slices.BinarySearchFunc(o.large, m, func(a, b mark) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Time, b.Time))
	})
	o.large = slices.Insert(o.large, at, m)
	o.large = o.large[:min(len(o.large), maxLarge)]
}

func (o *observer) Tell(in ledger.Input) {
	o.Books.Tell(in)
	if in, ok := in.(ledger.TensorReading); ok {
		for i := range in.Totals {
			if x := &in.Totals[i]; x.Device != ledger.CPUDevice {
				o.sizes.tensors(x)
			}
		}
	}
}
