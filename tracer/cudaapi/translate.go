// SPDX-License-Identifier: Apache-2.0

package cudaapi

import (
	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Translate returns the ledger's event for an event of the kernel half; with an Op of 0 the ledger
// needs no event. It returns false if the event is invalid.
func Translate(e *bpf.Event, details *bpf.Details) (ledger.Event, bool) {
	api, row := ByID(e.Api), ByID(e.Function)
	if api == nil || row == nil {
		return ledger.Event{}, false
	}
	event := ledger.Event{
		Kind: row.Kind, Space: row.Space, PID: e.Pid, TID: e.Tid, Device: int32(e.Device), Result: int32(e.Result),
		Time: e.Time, Address: e.Address, Size: e.Size, Stack: e.Stack, Context: e.Context, API: api.Name,
	}
	if row.Narrow {
		event.Size = uint64(uint32(e.Size))
		if row.Address.Width == 0 { // an address read through a pointer has its width already
			event.Address = uint64(uint32(e.Address))
		}
	}
	if row.Device != 0 {
		event.Device = int32(e.Extra)
	}
	switch e.Kind {
	case bpf.KindAlloc:
		event.Op = ledger.Alloc
	case bpf.KindAllocFailed:
		event.Op = ledger.AllocFailed
	case bpf.KindFree:
		event.Op = ledger.Free
	case bpf.KindFreeFailed:
		event.Op = ledger.FreeFailed
		return event, true
	case bpf.KindLearned:
		event.Op = ledger.Learn
		return event, true
	case bpf.KindCall:
	default:
		return ledger.Event{}, false
	}
	if row.Op != 0 {
		event.Op = row.Op
	}
	if event.Op == 0 {
		return ledger.Event{}, false
	}
	takeArguments(&event, e, row)
	takeDetails(&event, e, details, row)
	if event.Kind == ledger.Async && e.Flags&bpf.FlagCaptured != 0 { // the launch of the graph allocates the memory
		event.Kind, event.Handle = ledger.Graph, 0
	}
	return event, true
}

// takeArguments moves the address and the extra argument to the fields that the operation uses.
func takeArguments(event *ledger.Event, e *bpf.Event, row *Function) {
	switch event.Op {
	case ledger.Retain:
		event.Handle, event.Address = e.Address, e.Extra
	case ledger.ContextRetain, ledger.ContextDestroy:
		event.Context = e.Address
	case ledger.ContextDerive:
		event.Context, event.Handle = e.Address, e.Extra
	case ledger.PoolCreate, ledger.PoolOwn, ledger.PoolSelect, ledger.PoolDestroy, ledger.PoolTrim, ledger.PoolThreshold, ledger.PoolCurrent:
		event.Handle, event.Address = e.Address, 0
	default:
		if row.Handle != 0 {
			event.Handle = e.Extra
		}
	}
}

// takeDetails reads size, device and shared handle from structures. Values that could not be read
// become unknown.
func takeDetails(event *ledger.Event, e *bpf.Event, details *bpf.Details, row *Function) {
	if !row.WantsDetails() {
		return
	}
	valid := details != nil && e.Flags&bpf.FlagNoDetails == 0
	if row.Measure != nil {
		event.Size = ledger.UnknownSize
		if valid {
			event.Size = row.Measure(details, e.Kind == bpf.KindAllocFailed)
		}
	}
	if row.Location != 0 {
		event.Device = ledger.UnknownDevice
		if valid {
			var host bool
			if event.Device, host = location(row.Location.of(details)); host {
				event.Kind = ledger.Pinned
			}
		}
	}
	if row.Refine != nil {
		if !valid {
			details = nil
		}
		row.Refine(event, details)
	}
	if event.Op == ledger.PoolThreshold && (!valid || uint32(details.Argument[1]) != thresholdAttribute) {
		event.Op = 0
	}
	if row.Shares && valid {
		shared := details.Behind[:row.Behind.Size]
		if row.ByValue.Size != 0 {
			shared = details.ByValue[:row.ByValue.Size]
		}
		event.Handle = digest(shared)
	}
}
