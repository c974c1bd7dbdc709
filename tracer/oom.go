// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"maps"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// OOM is an allocation that a process asked for and did not get, because there was not
// enough memory. What PyTorch's allocator gets after it has emptied its cache is none.
type OOM struct {
	PID       uint32
	User      uint32 // as in ledger.Process
	Comm      string // at most 15 bytes, untrusted
	Time      uint64 // ns of CLOCK_MONOTONIC
	Stack     uint64 // id of the stack that asked; 0: none was taken
	API       string // "torch": PyTorch's allocator; else the call, "cudaMalloc"
	Kind      ledger.Kind
	Device    int32  // CUDA ordinal or UnknownDevice
	Size      uint64 // bytes that were wanted, or ledger.UnknownSize
	Allocated uint64 // by PyTorch's allocator on that device, as it says itself; 0 for other callers
	Reserved  uint64 // likewise

	torch bool // PyTorch's allocator has reported in the process

	Books *ledger.Snapshot // as of this event, for its receiver to keep; nil: take a Snapshot, which is younger
}

// LostOOMs counts those that Config.OOM was not told of, since there were too many at once. Some of
// them may have been none, as what they were was not looked at.
func (t *Tracer) LostOOMs() uint64 { return t.ooms.dropped.Load() }

// LostOOMsBy is LostOOMs by pid, as far as there is room for it.
func (t *Tracer) LostOOMsBy() map[uint32]uint64 {
	turn := t.desk.Take()
	defer turn.Done()
	return maps.Clone(t.ooms.droppedBy)
}
