// SPDX-License-Identifier: Apache-2.0

package cudaapi

import (
	"encoding/binary"
	"fmt"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// managedType is CU_MEM_ALLOCATION_TYPE_MANAGED, allowed for pools since CUDA 13.
const managedType = 2

// ofPool sets the kind in an event about a pool whose memory does not belong to one GPU. Such a
// pool is not the default or current pool of a device: the event becomes the creation of a pool.
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

// poolOf returns a Refine that reads the CUmemAllocationType in an argument. The pool of a locality
// domain is not the one of its device.
func poolOf(position int) func(*ledger.Event, *bpf.Details) {
	return func(e *ledger.Event, d *bpf.Details) {
		if d == nil {
			e.Op = 0 // the device of the pool is unknown
			return
		}
		if u32(d.Behind[:], 0) == locationLocality {
			e.Op = ledger.PoolCreate
		}
		ofPool(e, uint32(d.Argument[position-1]))
	}
}

// Types in CUgraphNodeParams, whose offset 16 has the parameters of this type.
const (
	nodeAllocates = 10 // CU_GRAPH_NODE_TYPE_MEM_ALLOC: at 16 CUmemPoolProps, at 120 bytes, at 128 the address
	nodeFrees     = 11 // CU_GRAPH_NODE_TYPE_MEM_FREE: at 16 the address
)

// addedNode turns the event into the allocation or the free of a graph node, or drops it.
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
	maxImage    = 1 << 36 // larger sizes were read from something that is not an image
)

// image returns the size of a loaded image according to its header: an ELF file, which ends with
// its section headers, or a fat binary. PTX is text without a header: its size is unknown.
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

// Doubt returns a warning if it is unknown whether the stream of an allocation had joined the
// capture of another stream, or "".
func Doubt(e *bpf.Event, event *ledger.Event) string {
	if e.Flags&bpf.FlagBesideCapture == 0 || event.Op != ledger.Alloc {
		return ""
	}
	return fmt.Sprintf("process %d allocated stream-ordered memory on one stream while it captured another: if the first stream had joined the capture, the launch of the graph allocates this memory", e.Pid)
}
