// SPDX-License-Identifier: Apache-2.0

package functions

import (
	"encoding/binary"
	"fmt"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// managedType is CU_MEM_ALLOCATION_TYPE_MANAGED, which pools can have since CUDA 13.
const managedType = 2

// ofPool says in an event about a pool what its memory is where that is not memory of one GPU. Such a pool is
// no device's own and no device's current one: the event becomes the news that there is the pool.
func ofPool(e *ledger.Event, allocationType uint32) {
	if allocationType == managedType {
		e.Kind = ledger.Managed
	}
	if e.Kind != 0 {
		e.Op = ledger.PoolCreate
	}
}

// createdPool reads CUmemPoolProps.
func createdPool(e *ledger.Event, d *bpf.Details) {
	if d != nil {
		ofPool(e, binary.LittleEndian.Uint32(d.Behind[:]))
	}
}

// poolOf reads the CUmemAllocationType that is an argument.
func poolOf(position int) func(*ledger.Event, *bpf.Details) {
	return func(e *ledger.Event, d *bpf.Details) {
		if d == nil {
			e.Op = 0 // nothing tells whose pool it is
			return
		}
		ofPool(e, uint32(d.Argument[position-1]))
	}
}

// CUgraphNodeParams: the type, and at 16 what nodes of that type have.
const (
	nodeAllocates = 10 // CU_GRAPH_NODE_TYPE_MEM_ALLOC: at 16 CUmemPoolProps, at 120 bytes, at 128 the address
	nodeFrees     = 11 // CU_GRAPH_NODE_TYPE_MEM_FREE: at 16 the address
)

// addedNode makes an allocation or a free of the graph's node, or nothing.
func addedNode(e *ledger.Event, d *bpf.Details) {
	if d == nil {
		e.Op = 0
		return
	}
	b := d.Behind[:]
	switch u32(b, 0) {
	case nodeAllocates:
		e.Address, e.Size = u64(b, 128), u64(b, 120)
		if u32(b, 16) == managedType {
			e.Kind = ledger.Managed
		}
	case nodeFrees:
		e.Op, e.Kind, e.Address, e.Stack, e.Device = ledger.Free, 0, u64(b, 16), 0, ledger.UnknownDevice
	default:
		e.Op = 0
	}
}

const (
	elfMagic    = 0x464c457f
	fatbinMagic = 0xba55ed50
	maxImage    = 1 << 36 // no image is larger: a higher size was misread
)

// image is the size of the code that a program hands over, as its header says: an ELF file, whose section headers
// stand at its end, or a fat binary. Of PTX, which is text, nothing tells it.
func image(d *bpf.Details, _ bool) uint64 {
	b := d.Behind[:]
	var size, rest uint64
	switch u32(b, 0) {
	case elfMagic:
		size, rest = u64(b, 40), uint64(binary.LittleEndian.Uint16(b[58:]))*uint64(binary.LittleEndian.Uint16(b[60:]))
	case fatbinMagic:
		size, rest = u64(b, 8), uint64(binary.LittleEndian.Uint16(b[6:]))
	default:
		return ledger.UnknownSize
	}
	if size > maxImage || size+rest > maxImage {
		return ledger.UnknownSize
	}
	return size + rest
}

// Doubt says what nothing tells of an allocation: whether its stream, which nothing captures that we saw, has joined
// the capture of another one.
func Doubt(e *bpf.Event, event *ledger.Event) string {
	if e.Flags&bpf.FlagBesideCapture == 0 || event.Op != ledger.Alloc {
		return ""
	}
	return fmt.Sprintf("process %d allocated stream-ordered memory on one stream while it captured another: if the first had joined the capture, that memory is the graph's and comes at its launch", e.Pid)
}
